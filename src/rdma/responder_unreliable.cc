// Requests to UC and UD QPs: nobody is told of a loss or a refusal (IBTA 9.8.2, 9.8.3).

#include <array>
#include <cstring>
#include <span>

#include "rdma/engine.h"
#include "rdma/responder.h"
#include "rdma/scatter_gather.h"

namespace softhca::rdma {

using spec::infiniband::kGrhBytes;
using spec::infiniband::kGsiQkey;

namespace {

/// GRH and payload to the begin of the pieces.
Reason scatter_datagram(KeyTable& keys, const KeyUser& user, std::span<const Sge> sges,
                        const wire::IbPacket& packet, const wire::Frame& frame) {
  std::array<std::byte, kGrhBytes> grh;
  auto fault = Reason::kNone;
  // Without a GRH its place stays as it is (IBTA 11.4.1.2).
  if (wire::emit_ud_grh(frame, packet, grh)) fault = scatter(keys, user, sges, 0, grh);
  if (fault != Reason::kNone) return fault;
  return scatter(keys, user, sges, kGrhBytes, frame, packet.payload_offset, packet.payload_size);
}

}  // namespace

/// GRH and payload where all of it goes to one piece of local memory, as mostly. False, and nothing
/// is done, if it wants a closer look. @pre the pieces have so much room
[[gnu::always_inline]] inline bool Responder::scatter_at_once(const wire::IbPacket& packet,
                                                              const wire::Frame& frame) {
  if (receive_.sges.size() != 1 || receive_.pd) return false;
  const std::size_t size = packet.payload_size;
  const auto& sge = receive_.sges.front();
  auto* const to =
      seen_key_.find(engine_.keys, sge.lkey, user(), sge.address, kGrhBytes + size, kLocalWrite);
  const auto* const from = frame.one_piece(packet.payload_offset, size);
  if (to == nullptr || from == nullptr) return false;
  (void)wire::emit_ud_grh(frame, packet, std::span<std::byte, kGrhBytes>(to, kGrhBytes));
  std::memmove(to + kGrhBytes, from, size);  // a QP may send to itself
  return true;
}

void Responder::handle_unreliable(const wire::IbPacket& packet, const wire::Frame& frame) {
  const auto& info = packet.info();
  const bool in_sequence = packet.bth.psn == expected_;
  expected_ = packet.bth.psn.next();
  // IBTA 9.8.2.2: a gap, or a new beginning, drops the message that was under way; its receive
  // request serves the next one.
  if (!in_sequence || (info.first && message_ != Message::kNone)) {
    uc_skip_ = true;
    message_ = Message::kNone;
  }
  if (info.first) uc_skip_ = false;
  if (uc_skip_) {
    if (info.last) uc_skip_ = false;
    ++qp_.counters_->out_of_sequence;
    return engine_.drop(&qp_, Drop::kUcMessage, Reason::kBrokenMessage);
  }
  const auto verdict = handle_message(packet, frame);
  if (verdict.ok()) return;
  message_ = Message::kNone;
  uc_skip_ = !info.last;
  const bool no_receive = verdict.reason == Reason::kNothingPosted;
  engine_.drop(&qp_, no_receive ? Drop::kNoReceive : Drop::kUcMessage, verdict.reason);
  // What is wrong with the QP's own receive queue ends the QP; what the peer did does not.
  if (verdict.completed) engine_.to_error(qp_);
}

[[gnu::always_inline]] inline void Responder::deliver_datagram(const wire::IbPacket& packet,
                                                               const wire::Frame& frame) {
  const auto bytes = kGrhBytes + packet.payload_size;
  if (bytes > room_) {
    ++qp_.counters_->resp_local_length_error;
    fail_receive(WorkStatus::kLocalLength, Reason::kDatagramTooLong);
    return engine_.to_error(qp_);
  }
  auto fault = Reason::kNone;
  if (!scatter_at_once(packet, frame)) {
    fault = scatter_datagram(engine_.keys, receive_user(), receive_.sges, packet, frame);
  }
  if (fault != Reason::kNone) {
    const auto verdict = receive_fault(fault, packet);
    if (!verdict.completed) return engine_.drop(&qp_, Drop::kNoReceive, verdict.reason);
    return engine_.to_error(qp_);
  }
  ++msn_;
  ReceiveCompletion completion{};
  const bool immediate = packet.info().has(wire::ExtHeader::kImmDt);
  completion.opcode = immediate ? ReceiveOpcode::kSendWithImmediate : ReceiveOpcode::kSend;
  completion.status = WorkStatus::kSuccess;
  completion.solicited = packet.bth.solicited_event;
  completion.byte_count = static_cast<std::uint32_t>(bytes);
  completion.immediate = immediate ? packet.ext.immdt.data : 0;
  completion.source_qpn = packet.ext.deth.src_qp;
  show_source(packet, completion);
  complete_receive(completion);
}

[[gnu::always_inline]] inline void Responder::receive_datagram(const wire::IbPacket& packet,
                                                               const wire::Frame& frame) {
  if (const auto verdict = take_receive(); !verdict.ok()) {
    engine_.drop(&qp_, Drop::kNoReceive, verdict.reason);
    if (verdict.completed) engine_.to_error(qp_);
    return;
  }
  deliver_datagram(packet, frame);
}

bool Responder::take_datagram(const wire::IbPacket& packet, const wire::Frame& frame) {
  const auto& attributes = qp_.attributes();
  if (qp_.state() != QpState::kRts || !qp_.service().datagram || fatal_ ||
      packet.ext.deth.qkey.value() != attributes.qkey ||
      !spec::infiniband::same_partition(packet.bth.pkey, attributes.pkey)) {
    return false;
  }
  pd_ = attributes.pd;
  receive_datagram(packet, frame);
  return true;
}

void Responder::handle_datagram(const wire::IbPacket& packet, const wire::Frame& frame) {
  const bool to_gsi = packet.bth.dest_qp == wire::kGsiQpn;
  const auto qkey = to_gsi ? kGsiQkey : qp_.attributes().qkey;
  if (packet.ext.deth.qkey.value() != qkey) {
    return engine_.drop(&qp_, Drop::kQkey, Reason::kWrongQkey);
  }
  receive_datagram(packet, frame);
}

}  // namespace softhca::rdma
