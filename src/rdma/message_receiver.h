// The message that a connected QP is receiving: a SEND or RDMA WRITE, packet by packet. RC and UC
// alike. Internal.
#pragma once

#include <cstdint>
#include <span>

#include "rdma/memory_key.h"
#include "rdma/queue_pair.h"
#include "rdma/receive_queue.h"
#include "rdma/request_outcome.h"
#include "rdma/responder_fault.h"
#include "rdma/write_target.h"
#include "wire/ib_packet.h"

namespace softhca::rdma {

class MessageReceiver {
 public:
  MessageReceiver(Engine& engine, QueuePair& qp, ResponderFault& fault);

  /// The QP goes to RESET.
  void reset();
  /// The receive requests that messages use.
  ReceiveQueue& receives() { return receives_; }
  const ReceiveQueue& receives() const { return receives_; }

  /// True if a message has begun and not ended.
  bool has_begun() const { return kind_ != Kind::kNone; }
  /// Drops the message: its receive request serves the next one.
  void drop() { kind_ = Kind::kNone; }
  /// Drops the message whose receive request is lost with its SRQ.
  void forget_lost_receive();

  /// The PD for the current request's R_Key.
  void set_pd(Pd pd) { pd_ = pd; }
  /// XRC: takes SRQ and PD from the packet.
  RequestOutcome select_srq(const wire::IbPacket& packet);
  /// The peer as the user of an R_Key, by default that of the current request.
  KeyUser peer() const { return peer(pd_); }
  KeyUser peer(Pd pd) const { return {pd, qp_.qpn(), qp_.attributes().reserved_lkey, true}; }

  /// Takes the next packet. If it ends the message, counts it in `msn`.
  RequestOutcome handle(const wire::IbPacket& packet, const wire::Frame& frame, wire::Msn& msn);
  /// Takes `count` Middles of a train, from `packet` on. False if any needs handle().
  bool handle_middles(const wire::IbPacket& packet, const wire::Frame& frame, unsigned count);

 private:
  enum class Kind : std::uint8_t { kNone, kSend, kWrite };

  RequestOutcome check_order(const wire::IbPacket& packet) const;
  RequestOutcome handle_send(const wire::IbPacket& packet, const wire::Frame& frame,
                             wire::Msn& msn);
  RequestOutcome refuse_length();
  RequestOutcome finish_send(const wire::IbPacket& packet, std::span<const std::byte> data,
                             wire::Msn& msn);
  RequestOutcome handle_write(const wire::IbPacket& packet, const wire::Frame& frame,
                              wire::Msn& msn);
  RequestOutcome begin_write(const wire::IbPacket& packet);
  RequestOutcome invalidate(MKey rkey);
  bool store_middles(const wire::IbPacket& packet, const wire::Frame& frame, std::uint64_t size);
  void complete(const wire::IbPacket& packet, ReceiveOpcode opcode,
                std::span<const std::byte> data = {});
  RequestOutcome receive_fault(Reason fault, const wire::IbPacket& packet);
  RequestOutcome write_fault(Reason fault, const RequestOutcome& otherwise,
                             const wire::IbPacket& packet);

  Engine& engine_;
  QueuePair& qp_;
  ResponderFault& fault_;
  Kind kind_ = Kind::kNone;
  Pd pd_;
  std::uint64_t received_ = 0;  ///< bytes of this message so far
  WriteTarget write_;
  ReceiveQueue receives_;
};

}  // namespace softhca::rdma
