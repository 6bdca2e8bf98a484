// Responses to an RC requester: acknowledgements, NAKs, READ and atomic responses (IBTA 9.7.5,
// 9.7.6), and the timers that await them.

#include <algorithm>
#include <array>
#include <cstring>

#include "rdma/requester_inl.h"

namespace softhca::rdma {
using spec::infiniband::rnr_timer;

namespace {

/// True if the device takes the data of this READ with the completion.
bool goes_with_completion(const SendEntry& e, const QpOptions& options) {
  // For a READ of 0 bytes the difference wraps, which yields false.
  return e.request.signaled && e.length - 1 < options.completion_data.of_reads;
}

}  // namespace

void Requester::handle_answer(const wire::IbPacket& packet, const wire::Frame& frame) {
  if (!state_rules(qp_.state()).finishes) {
    return engine_.drop(&qp_, Drop::kQpState, Reason::kUnexpectedAnswer);
  }
  // Only PSNs that were sent and not yet acknowledged are valid; all others are ghosts and
  // duplicates.
  const auto distance = (packet.bth.psn.value() - window().unacked()) & wire::Psn::kMask;
  if (distance >= window().sent_end() - window().unacked())
    return engine_.drop(&qp_, Drop::kDuplicate, Reason::kAnswerToNothing);
  const auto psn = window().unacked() + distance;
  switch (packet.info().operation) {
    case wire::Operation::kAcknowledge:
      return handle_acknowledge(psn, packet.ext.aeth);
    case wire::Operation::kRdmaReadResponse:
      return handle_read_response(psn, packet, frame);
    case wire::Operation::kAtomicAcknowledge:
      return handle_atomic_response(psn, packet);
    default:
      return;
  }
}

bool Requester::take_acknowledgement(const wire::TransportHeaders& headers) {
  const auto& [bth, ext] = headers;
  if (ext.aeth.type != wire::AethType::ACK || window().all_acknowledged() ||
      ((bth.psn.value() + 1) ^ window().sent_end()) & wire::Psn::kMask ||
      qp_.state() != QpState::kRts || !window().all_sent() || window().reads_in_flight() != 0 ||
      !pause_.over() || qp_.service().packets != wire::Service::RC || !qp_.takes(bth.pkey)) {
    return false;
  }
  window().acknowledge(window().sent_end());
  refresh_retries();
  engine_.timers.stop(qp_, Timer::kAck);
  queue_.complete_sent();
  if (!queue_.all_fetched()) engine_.mark_ready(qp_);  // it may have waited for room
  return true;
}

bool Requester::take_read_response(const wire::TransportHeaders& headers,
                                   const wire::Frame& frame) {
  const auto& bth = headers.bth;
  if (window().head() == window().cursor() || qp_.state() != QpState::kRts || !pause_.over() ||
      (bth.psn.value() ^ window().unacked()) & wire::Psn::kMask || window().all_acknowledged() ||
      qp_.service().packets != wire::Service::RC || !qp_.takes(bth.pkey)) {
    return false;
  }
  auto& e = window().oldest();
  if (!e.is_read() || e.psns != 1 || e.first_psn != window().unacked() ||
      e.length != frame.packet_payload() || e.status != WorkStatus::kSuccess ||
      window().cursor() < window().begun() || e.length <= qp_.options().completion_data.of_reads) {
    return false;
  }
  auto* const to = memory_.find_target(e);
  const auto* const from = frame.one_piece(frame.headers_size(), e.length);
  if (to == nullptr || from == nullptr) return false;
  std::memmove(to, from, e.length);
  window().acknowledge(window().unacked() + 1);
  refresh_retries();
  engine_.timers.stop(qp_, Timer::kAck);
  if (!window().all_acknowledged()) arm_ack_timer();
  window().retire_read();
  if (e.request.signaled) queue_.complete(e, WorkStatus::kSuccess, Reason::kNone);
  if (queue_.may_complete()) queue_.complete_done();
  if (queue_.has_more()) engine_.mark_ready(qp_);
  return true;
}

/// The request that a response with data, or a NAK, of `psn` concerns. Acknowledges all requests
/// before it, which makes it the oldest unanswered one. Null if that is not possible, or if the
/// request has failed already and completes in its turn.
SendEntry* Requester::answered_by(std::uint64_t psn) {
  if (!acknowledge(psn)) return nullptr;
  const auto i = window().unanswered();
  return i != window().tail() && window().entry(i).status == WorkStatus::kSuccess
             ? &window().entry(i)
             : nullptr;
}

/// Acknowledges everything before `target`. False if a READ or atomic before it still lacks its
/// data (an implied NAK), or if the QP failed.
bool Requester::acknowledge(std::uint64_t target) {
  if (target == window().unacked()) return true;
  auto limit = target;
  for (auto i = window().unanswered(); i != window().tail() && window().entry(i).first_psn < target;
       ++i) {
    if (window().entry(i).wants_data()) {
      limit = std::max(window().unacked(), window().entry(i).first_psn);
      break;
    }
  }
  if (limit != window().unacked()) advance(limit);
  if (!state_rules(qp_.state()).finishes) return false;
  if (limit == target) return true;
  implied_nak();
  return false;
}

/// Makes `target` the oldest unacknowledged PSN.
void Requester::advance(std::uint64_t target) {
  window().advance(target);
  refresh_retries();
  if (window().all_acknowledged()) {
    engine_.timers.stop(qp_, Timer::kAck);
  } else if (!pause_.repeats()) {
    engine_.timers.stop(qp_, Timer::kAck);
    arm_ack_timer();
  }
  queue_.complete_done();
  if (queue_.has_more()) engine_.mark_ready(qp_);
}

void Requester::handle_acknowledge(std::uint64_t psn, const wire::Aeth& aeth) {
  switch (aeth.type) {
    case wire::AethType::ACK:
      acknowledge(psn + 1);
      return;
    case wire::AethType::RNR_NAK:
      if (answered_by(psn) != nullptr) handle_rnr_nak(aeth.value);
      return;
    case wire::AethType::NAK:
      if (answered_by(psn) == nullptr) return;
      if (aeth.nak_code() != wire::NakCode::PSN_SEQUENCE_ERROR) {
        return handle_fatal_nak(aeth.nak_code());
      }
      ++qp_.counters().packet_seq_err;
      // While the requester waits, a repeated NAK has no news: everything will be sent again.
      if (pause_.repeats() || use_retry()) rewind();
      return;
    default:
      return engine_.drop(&qp_, Drop::kMalformed, Reason::kReservedSyndrome);
  }
}

void Requester::handle_rnr_nak(std::uint8_t timer_code) {
  if (pause_.for_timer()) return;
  ++qp_.counters().rnr_naks_received;
  retries_.refresh_losses(qp_.attributes());
  if (!retries_.use_rnr(qp_.attributes())) {
    ++qp_.counters().rnr_retries_exceeded;
    return queue_.fail_unanswered(WorkStatus::kRnrRetryExceeded, Reason::kRnrRetriesExceeded);
  }
  rewind();
  pause_.begin_timer();
  engine_.timers.stop(qp_, Timer::kAck);
  engine_.timers.arm(qp_, Timer::kRnr, engine_.now + rnr_timer(timer_code));
}

void Requester::handle_fatal_nak(wire::NakCode code) {
  switch (code) {
    case wire::NakCode::INVALID_REQUEST:
      ++qp_.counters().req_remote_invalid_request;
      return queue_.fail_unanswered(WorkStatus::kRemoteInvalidRequest, Reason::kNakInvalidRequest);
    case wire::NakCode::REMOTE_ACCESS_ERROR:
      ++qp_.counters().req_remote_access_errors;
      return queue_.fail_unanswered(WorkStatus::kRemoteAccess, Reason::kNakRemoteAccess);
    case wire::NakCode::REMOTE_OPERATIONAL_ERROR:
      ++qp_.counters().req_remote_operation_errors;
      return queue_.fail_unanswered(WorkStatus::kRemoteOperation, Reason::kNakRemoteOperation);
    default:
      return engine_.drop(&qp_, Drop::kMalformed, Reason::kReservedNak);
  }
}

void Requester::handle_read_response(std::uint64_t psn, const wire::IbPacket& packet,
                                     const wire::Frame& frame) {
  auto* const answered = answered_by(psn);
  if (answered == nullptr) return;
  auto& e = *answered;
  const auto mtu = qp_.attributes().path_mtu;
  const auto offset = window().progress(e) * mtu;
  const bool last = psn + 1 == e.end_psn();
  const auto expected = last ? e.length - offset : mtu;
  // First and Middle are not distinguished: a READ that was requested again starts with a new
  // First.
  if (!e.is_read() || packet.info().last != last || packet.payload_size != expected) {
    return queue_.fail_unanswered(WorkStatus::kBadResponse, Reason::kReadResponseMismatch);
  }
  if (packet.payload_size == e.length && goes_with_completion(e, qp_.options())) {
    std::array<std::byte, kCompletionDataMax> data;
    frame.copy_range(packet.payload_offset, std::span(data).first(e.length));
    e.completion_data().assign(std::span(data).first(e.length));
    return advance(psn + 1);
  }
  const auto fault = memory_.put(e, offset, frame, packet.payload_offset, packet.payload_size);
  if (!engine_.moved(qp_, fault, true)) return hold_or_fail(fault, offset);
  advance(psn + 1);
}

unsigned Requester::handle_middles(const wire::IbPacket& packet, const wire::Frame& frame,
                                   unsigned count) {
  if (!state_rules(qp_.state()).finishes) return 0;
  const auto oldest = window().unanswered();
  if (oldest == window().tail()) return 0;
  const auto& e = window().entry(oldest);
  // Only Middles that continue the READ in order and do not reach its end.
  if ((packet.bth.psn.value() ^ window().unacked()) & wire::Psn::kMask || !e.is_read() ||
      e.first_psn > window().unacked() ||
      window().unacked() + count >= std::min(e.end_psn(), window().sent_end())) {
    return 0;
  }
  const auto mtu = qp_.attributes().path_mtu;
  if (packet.payload_size != mtu) return 0;
  const auto fault = memory_.put(e, window().progress(e) * mtu, frame, packet.payload_offset,
                                 std::size_t{count} * mtu);
  if (!engine_.moved(qp_, fault, true)) return 0;
  advance(window().unacked() + count);
  return count;
}

void Requester::handle_atomic_response(std::uint64_t psn, const wire::IbPacket& packet) {
  auto* const answered = answered_by(psn);
  if (answered == nullptr) return;
  auto& e = *answered;
  if (!e.is_atomic()) {
    return queue_.fail_unanswered(WorkStatus::kBadResponse, Reason::kAtomicResponseMismatch);
  }
  // Write to memory even if READs carry data in the completion. For an atomic result there libmlx5
  // takes the bytes as they are and UCX takes them in wire order, whatever the device reports.
  const auto fault = memory_.put_result(e, packet.ext.atomic_ack.original);
  if (!engine_.moved(qp_, fault, true)) return hold_or_fail(fault, 0);
  advance(psn + 1);
}

// Retrying ---------------------------------------------------------------------------------------

void Requester::implied_nak() {
  if (pause_.repeats() || !retries_.begin_implied(window().unacked())) return;
  ++qp_.counters().implied_nak_seq_err;
  if (use_retry()) rewind();
}

/// False if no retry was left: the oldest request has then failed.
bool Requester::use_retry() {
  if (retries_.use()) return true;
  ++qp_.counters().transport_retries_exceeded;
  queue_.fail_unanswered(WorkStatus::kTransportRetryExceeded, Reason::kRetriesExceeded);
  return false;
}

/// Goes back to the oldest unanswered packet.
void Requester::rewind() {
  window().rewind();
  engine_.timers.stop(qp_, Timer::kAck);
  engine_.mark_ready(qp_);
}

void Requester::handle_ack_timeout() {
  engine_.timers.stop(qp_, Timer::kAck);
  if (!state_rules(qp_.state()).finishes || window().all_acknowledged()) return;
  if (!retries_.counts_timeout(engine_.ack_patience)) return arm_ack_timer();
  ++qp_.counters().local_ack_timeout_err;
  retries_.forget_implied();
  if (use_retry()) rewind();
}

void Requester::wait_for_rate(util::Time time) {
  if (!pause_.for_timer()) engine_.timers.arm(qp_, Timer::kRnr, time);
  pause_.begin_rate();
}

void Requester::handle_rnr_timeout() {
  engine_.timers.stop(qp_, Timer::kRnr);
  // Packets sent before the page fault may still await their acknowledgement.
  if (pause_.for_timer() && qp_.service().reliable && !window().all_acknowledged()) arm_ack_timer();
  pause_.end_timer();
  engine_.mark_ready(qp_);
}

}  // namespace softhca::rdma
