// Requests to UC and UD QPs: losses and refusals are not reported to the peer (IBTA 9.8.2, 9.8.3).

#include <array>
#include <span>

#include "rdma/engine.h"
#include "rdma/responder.h"
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

void Responder::handle_unreliable(const wire::IbPacket& packet, const wire::Frame& frame) {
  const auto& info = packet.info();
  const bool in_sequence = packet.bth.psn == numbers_.expected;
  numbers_.expected = packet.bth.psn.next();
  // IBTA 9.8.2.2: a gap, or a new First, drops the current message. Its receive request serves the
  // next one.
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
  // A fault of the QP's own receive queue ends the QP; a fault of the peer does not.
  if (verdict.completed) engine_.to_error(qp_);
}

void Responder::deliver_datagram(const wire::IbPacket& packet, const wire::Frame& frame) {
  const std::size_t in_front = qp_.options().datagram_header ? kGrhBytes : 0;
  const auto bytes = in_front + packet.payload_size;
  if (bytes > receives_.room()) {
    // The receive request serves the next datagram: any station could end the QP otherwise.
    ++qp_.counters_->resp_local_length_error;
    return engine_.drop(&qp_, Drop::kNoReceive, Reason::kDatagramTooLong);
  }
  const auto fault = scatter_datagram(engine_.keys, receives_.user(pd_), receives_.request().sges,
                                      packet, frame, in_front);
  if (!engine_.moved(qp_, fault, false)) {
    const auto verdict = receive_fault(fault, packet);
    if (!verdict.completed) return engine_.drop(&qp_, Drop::kNoReceive, verdict.reason);
    return engine_.to_error(qp_);
  }
  ++numbers_.msn;
  ReceiveCompletion completion{};
  const bool immediate = packet.info().has(wire::ExtHeader::kImmDt);
  completion.opcode = immediate ? ReceiveOpcode::kSendWithImmediate : ReceiveOpcode::kSend;
  completion.status = WorkStatus::kSuccess;
  completion.solicited = packet.bth.solicited_event;
  completion.byte_count = static_cast<std::uint32_t>(bytes);
  completion.immediate = immediate ? packet.ext.immdt.data : 0;
  completion.source_qpn = packet.ext.deth.src_qp;
  receives_.show_source(packet, completion);
  receives_.complete(completion);
}

void Responder::receive_datagram(const wire::IbPacket& packet, const wire::Frame& frame) {
  if (const auto verdict = receives_.take(); !verdict.ok()) return drop_datagram(verdict);
  deliver_datagram(packet, frame);
}

/// Drops a datagram for which no receive request could be taken.
void Responder::drop_datagram(const Verdict& verdict) {
  engine_.drop(&qp_, Drop::kNoReceive, verdict.reason);
  if (verdict.completed) engine_.to_error(qp_);
}

void Responder::handle_datagram(const wire::IbPacket& packet, const wire::Frame& frame) {
  // No transport sends so much, but a frame of another process or a raw Ethernet queue may hold it.
  if (packet.payload_size > kMtuMax) {
    return engine_.drop(&qp_, Drop::kMalformed, Reason::kPacketSize);
  }
  const bool to_gsi = packet.bth.dest_qp == wire::kGsiQpn;
  const auto qkey = to_gsi ? kGsiQkey : qp_.attributes().qkey;
  if (packet.ext.deth.qkey.value() != qkey) {
    return engine_.drop(&qp_, Drop::kQkey, Reason::kWrongQkey);
  }
  receive_datagram(packet, frame);
}

}  // namespace softhca::rdma
