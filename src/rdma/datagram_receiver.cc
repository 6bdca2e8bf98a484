#include "rdma/datagram_receiver.h"

#include <array>
#include <span>

#include "rdma/engine.h"
#include "rdma/scatter_gather.h"

namespace softhca::rdma {

using spec::infiniband::kGrhBytes;
using spec::infiniband::kGsiQkey;

namespace {

/// The largest payload of a packet (IBTA 11.2.4.2).
constexpr std::size_t kMtuMax = 4096;

/// Stores the GRH, if there is room in front, and the payload, from the start of the SGEs. A
/// signature error in either is reported for the datagram.
Reason scatter_datagram(KeyTable& keys, const KeyUser& user, std::span<const Sge> sges,
                        const wire::IbPacket& packet, const wire::Frame& frame,
                        std::size_t in_front) {
  std::array<std::byte, kGrhBytes> grh;
  auto fault = Reason::kNone;
  // Without a GRH its bytes stay unchanged (IBTA 11.4.1.2).
  if (in_front != 0 && wire::emit_ud_grh(frame, packet, grh))
    fault = scatter(keys, user, sges, 0, grh);
  if (fault != Reason::kNone && fault != Reason::kSignatureMismatch) return fault;
  const auto of_payload =
      scatter(keys, user, sges, in_front, frame, packet.payload_offset, packet.payload_size);
  return of_payload == Reason::kNone ? fault : of_payload;
}

}  // namespace

void DatagramReceiver::receive(const wire::IbPacket& packet, const wire::Frame& frame,
                               ReceiveQueue& receives, wire::Msn& msn) {
  // No transport sends so much, but a frame of another process or a raw Ethernet queue may hold it.
  if (packet.payload_size > kMtuMax) {
    return engine_.drop(&qp_, Drop::kMalformed, Reason::kPacketSize);
  }
  // A port without a GSI may have an ordinary QP1.
  const bool to_gsi = packet.bth.dest_qp == wire::kGsiQpn && engine_.is_gsi(qp_);
  const auto qkey = to_gsi ? kGsiQkey : qp_.attributes().qkey;
  if (packet.ext.deth.qkey.value() != qkey) {
    return engine_.drop(&qp_, Drop::kQkey, Reason::kWrongQkey);
  }
  if (const auto outcome = receives.take(); !outcome.ok()) return drop(outcome);
  deliver(packet, frame, receives, msn);
}

void DatagramReceiver::drop(const RequestOutcome& outcome) {
  engine_.drop(&qp_, Drop::kNoReceive, outcome.reason);
  if (outcome.completed) engine_.to_error(qp_);
}

void DatagramReceiver::deliver(const wire::IbPacket& packet, const wire::Frame& frame,
                               ReceiveQueue& receives, wire::Msn& msn) {
  const std::size_t in_front = qp_.options().datagram_header ? kGrhBytes : 0;
  const auto bytes = in_front + packet.payload_size;
  if (bytes > receives.room()) {
    // The receive request serves the next datagram: any station could end the QP otherwise.
    ++qp_.counters().resp_local_length_error;
    return engine_.drop(&qp_, Drop::kNoReceive, Reason::kDatagramTooLong);
  }
  const auto fault = scatter_datagram(engine_.keys, receives.user(qp_.attributes().pd),
                                      receives.request().sges, packet, frame, in_front);
  if (!engine_.moved(qp_, fault, false)) {
    const auto outcome = fault_.hold_receive(receives, fault, 0, packet.payload_size);
    if (!outcome.completed) return engine_.drop(&qp_, Drop::kNoReceive, outcome.reason);
    return engine_.to_error(qp_);
  }
  ++msn;
  ReceiveCompletion completion{};
  const bool immediate = packet.info().has(wire::ExtHeader::kImmDt);
  completion.opcode = immediate ? ReceiveOpcode::kSendWithImmediate : ReceiveOpcode::kSend;
  completion.status = WorkStatus::kSuccess;
  completion.solicited = packet.bth.solicited_event;
  completion.byte_count = static_cast<std::uint32_t>(bytes);
  completion.immediate = immediate ? packet.ext.immdt.data : 0;
  completion.source_qpn = packet.ext.deth.src_qp;
  receives.show_source(packet, completion);
  receives.complete(completion);
}

}  // namespace softhca::rdma
