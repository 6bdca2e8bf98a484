// The headers of the requests of a connected QP: messages, READ and atomic requests. Internal.
#pragma once

#include <cstdint>

#include "rdma/message_opcodes.h"
#include "rdma/queue_pair.h"
#include "rdma/send_entry.h"
#include "wire/ib_header.h"

namespace softhca::rdma {

/// Each function begins a packet in `frame` and returns its headers, to which a DC initiator adds
/// its own. `path`: the headers of the QP's path.
class PacketWriter {
 public:
  explicit PacketWriter(const QueuePair& qp) : qp_(qp) {}

  /// A message of one packet, the common case.
  [[gnu::always_inline]] wire::TransportHeaders& begin_only(const wire::IbHeader& path,
                                                            const SendEntry& e,
                                                            wire::Frame& frame) {
    const auto& request = e.request;
    const auto& service = qp_.service();
    if (request.opcode != only_opcode_) {
      only_opcode_ = request.opcode;
      only_form_ = wire::IbHeader::form(
          opcode_of(service.packets, rc_opcodes(request.opcode).at(true, true)));
    }
    auto& headers = path.begin(only_form_, e.length, frame);
    fill(headers.bth, e.first_psn);
    headers.bth.solicited_event = request.solicited;
    headers.bth.ack_req = service.reliable;
    fill(headers.ext, e);
    return headers;
  }

  /// Packets of a longer message.
  struct Part {
    std::uint32_t packet;  ///< the first of them, within the message
    unsigned count;        ///< packets; a train if there are several
    std::uint64_t length;  ///< bytes of their payload
    bool last;             ///< they end the message
    bool ack_req;          ///< the last one requests an acknowledgement
  };
  [[gnu::always_inline]] wire::TransportHeaders& begin_part(const wire::IbHeader& path,
                                                            const SendEntry& e, const Part& part,
                                                            wire::Frame& frame) const {
    const bool first = part.packet == 0;
    const auto opcode =
        opcode_of(qp_.service().packets, rc_opcodes(e.request.opcode).at(first, part.last));
    auto& headers =
        path.begin(opcode, part.count == 1 ? part.length : qp_.attributes().path_mtu, frame);
    fill(headers.bth, e.first_psn + part.packet);
    headers.bth.solicited_event = part.last && e.request.solicited;
    headers.bth.ack_req = part.ack_req && part.count == 1;
    fill(headers.ext, e);
    return headers;
  }
  /// Makes the frame of several packets a train.
  void set_train(const SendEntry& entry, const Part& part, wire::Frame& frame) const;
  /// A READ request for all but the first `done` packets of the response.
  [[gnu::always_inline]] wire::TransportHeaders& begin_read(const wire::IbHeader& path,
                                                            const SendEntry& e, std::uint64_t done,
                                                            wire::Frame& frame) const {
    const auto offset = done * qp_.attributes().path_mtu;
    auto& headers =
        path.begin(opcode_of(qp_.service().packets, wire::Opcode::RC_RDMA_READ_REQUEST), 0, frame);
    fill(headers.bth, e.first_psn + done);
    headers.bth.ack_req = true;  // the READ response acknowledges it
    headers.ext.reth = {e.request.remote_address + offset, wire::RKey(e.request.rkey.value()),
                        static_cast<std::uint32_t>(e.length - offset)};
    headers.ext.xrceth.xrc_srq = e.request.remote_srqn;
    return headers;
  }
  /// An atomic request, with its operands.
  wire::TransportHeaders& begin_atomic(const wire::IbHeader& path, const SendEntry& entry,
                                       wire::Frame& frame) const;

 private:
  void fill(wire::Bth& bth, std::uint64_t psn) const;
  static void fill(wire::ExtHeaders& ext, const SendEntry& entry);

  const QueuePair& qp_;
  SendOpcode only_opcode_ = SendOpcode::kNop;  ///< opcode of the last single-packet message
  wire::IbHeader::Form only_form_;             ///< header form for only_opcode_
};

/// The BTH of a request of this QP, without the solicited event and AckReq bits.
[[gnu::always_inline]] inline void PacketWriter::fill(wire::Bth& bth, std::uint64_t psn) const {
  bth.mig_req = true;  // the only path, so the connection is in Migrated (IBTA 17.2.8.1)
  bth.pkey = qp_.pkey();
  bth.dest_qp = qp_.attributes().remote_qpn;
  bth.psn = wire::Psn(static_cast<std::uint32_t>(psn));
}

/// Sets every extended header that a message may have; its opcode selects those that are sent.
[[gnu::always_inline]] inline void PacketWriter::fill(wire::ExtHeaders& ext, const SendEntry& e) {
  const auto& request = e.request;
  ext.reth = {request.remote_address, wire::RKey(request.rkey.value()), e.length};
  ext.immdt.data = request.immediate;
  ext.ieth.rkey = wire::RKey(request.immediate);
  ext.xrceth.xrc_srq = request.remote_srqn;
}

}  // namespace softhca::rdma
