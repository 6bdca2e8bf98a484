#include "rdma/response_receiver.h"

#include <algorithm>
#include <array>

#include "rdma/retransmission_inl.h"

namespace softhca::rdma {
namespace {

/// True if the device takes the data of this READ with the completion.
bool goes_with_completion(const SendEntry& e, const QpOptions& options) {
  // For a READ of 0 bytes the difference wraps, which yields false.
  return e.request.signaled && e.length - 1 < options.completion_data.of_reads;
}

}  // namespace

void ResponseReceiver::handle(const wire::IbPacket& packet, const wire::Frame& frame,
                              Retransmission& sent, RequestMemory& memory) {
  if (!state_rules(qp_.state()).finishes) {
    return engine_.drop(&qp_, Drop::kQpState, Reason::kUnexpectedAnswer);
  }
  auto& window = sent.window();
  // Only PSNs that were sent and not yet acknowledged are valid; all others are ghosts and
  // duplicates.
  const auto distance = (packet.bth.psn.value() - window.unacked()) & wire::Psn::kMask;
  if (distance >= window.sent_end() - window.unacked())
    return engine_.drop(&qp_, Drop::kDuplicate, Reason::kAnswerToNothing);
  const auto psn = window.unacked() + distance;
  switch (packet.info().operation) {
    case wire::Operation::kAcknowledge:
      return handle_acknowledge(psn, packet.ext.aeth, sent);
    case wire::Operation::kRdmaReadResponse:
      return handle_read_response(psn, packet, frame, sent, memory);
    case wire::Operation::kAtomicAcknowledge:
      return handle_atomic_response(psn, packet, sent, memory);
    default:
      return;
  }
}

void ResponseReceiver::handle_acknowledge(std::uint64_t psn, const wire::Aeth& aeth,
                                          Retransmission& sent) {
  switch (aeth.type) {
    case wire::AethType::ACK:
      sent.acknowledge(psn + 1);
      return;
    case wire::AethType::RNR_NAK:
      if (sent.answered_by(psn) != nullptr) sent.handle_rnr_nak(aeth.value);
      return;
    case wire::AethType::NAK:
      if (sent.answered_by(psn) == nullptr) return;
      if (aeth.nak_code() != wire::NakCode::PSN_SEQUENCE_ERROR) {
        return handle_fatal_nak(aeth.nak_code(), sent.queue());
      }
      return sent.handle_sequence_nak();
    default:
      return engine_.drop(&qp_, Drop::kMalformed, Reason::kReservedSyndrome);
  }
}

void ResponseReceiver::handle_fatal_nak(wire::NakCode code, SendQueue& queue) {
  switch (code) {
    case wire::NakCode::INVALID_REQUEST:
      ++qp_.counters().req_remote_invalid_request;
      return queue.fail_unanswered(WorkStatus::kRemoteInvalidRequest, Reason::kNakInvalidRequest);
    case wire::NakCode::REMOTE_ACCESS_ERROR:
      ++qp_.counters().req_remote_access_errors;
      return queue.fail_unanswered(WorkStatus::kRemoteAccess, Reason::kNakRemoteAccess);
    case wire::NakCode::REMOTE_OPERATIONAL_ERROR:
      ++qp_.counters().req_remote_operation_errors;
      return queue.fail_unanswered(WorkStatus::kRemoteOperation, Reason::kNakRemoteOperation);
    default:
      return engine_.drop(&qp_, Drop::kMalformed, Reason::kReservedNak);
  }
}

void ResponseReceiver::handle_read_response(std::uint64_t psn, const wire::IbPacket& packet,
                                            const wire::Frame& frame, Retransmission& sent,
                                            RequestMemory& memory) {
  auto* const answered = sent.answered_by(psn);
  if (answered == nullptr) return;
  auto& e = *answered;
  const auto mtu = qp_.attributes().path_mtu;
  const auto offset = sent.window().progress(e) * mtu;
  const bool last = psn + 1 == e.end_psn();
  const auto expected = last ? e.length - offset : mtu;
  // First and Middle are not distinguished: a READ that was requested again starts with a new
  // First.
  if (!e.is_read() || packet.info().last != last || packet.payload_size != expected) {
    return sent.queue().fail_unanswered(WorkStatus::kBadResponse, Reason::kReadResponseMismatch);
  }
  if (packet.payload_size == e.length && goes_with_completion(e, qp_.options())) {
    std::array<std::byte, kCompletionDataMax> data;
    frame.copy_range(packet.payload_offset, std::span(data).first(e.length));
    e.completion_data().assign(std::span(data).first(e.length));
    return sent.advance(psn + 1);
  }
  const auto fault = memory.put(e, offset, frame, packet.payload_offset, packet.payload_size);
  if (!engine_.moved(qp_, fault, true)) return sent.hold_or_fail(fault, offset);
  sent.advance(psn + 1);
}

unsigned ResponseReceiver::handle_middles(const wire::IbPacket& packet, const wire::Frame& frame,
                                          unsigned count, Retransmission& sent,
                                          RequestMemory& memory) {
  if (!state_rules(qp_.state()).finishes) return 0;
  auto& window = sent.window();
  const auto oldest = window.unanswered();
  if (oldest == window.tail()) return 0;
  const auto& e = window.entry(oldest);
  // Only Middles that continue the READ in order and do not reach its end.
  if ((packet.bth.psn.value() ^ window.unacked()) & wire::Psn::kMask || !e.is_read() ||
      e.first_psn > window.unacked() ||
      window.unacked() + count >= std::min(e.end_psn(), window.sent_end())) {
    return 0;
  }
  const auto mtu = qp_.attributes().path_mtu;
  if (packet.payload_size != mtu) return 0;
  const auto fault = memory.put(e, window.progress(e) * mtu, frame, packet.payload_offset,
                                std::size_t{count} * mtu);
  if (!engine_.moved(qp_, fault, true)) return 0;
  sent.advance(window.unacked() + count);
  return count;
}

void ResponseReceiver::handle_atomic_response(std::uint64_t psn, const wire::IbPacket& packet,
                                              Retransmission& sent, RequestMemory& memory) {
  auto* const answered = sent.answered_by(psn);
  if (answered == nullptr) return;
  auto& e = *answered;
  if (!e.is_atomic()) {
    return sent.queue().fail_unanswered(WorkStatus::kBadResponse, Reason::kAtomicResponseMismatch);
  }
  // Write to memory even if READs carry data in the completion. For an atomic result there libmlx5
  // takes the bytes as they are and UCX takes them in wire order, whatever the device reports.
  const auto fault = memory.put_result(e, packet.ext.atomic_ack.original);
  if (!engine_.moved(qp_, fault, true)) return sent.hold_or_fail(fault, 0);
  sent.advance(psn + 1);
}

}  // namespace softhca::rdma
