#include "rdma/retransmission.h"

#include <algorithm>

#include "rdma/retransmission_inl.h"

namespace softhca::rdma {
namespace {

using namespace std::chrono_literals;
using spec::infiniband::rnr_timer;

/// Interval after which a requester reports a fault again that the device had no room for.
constexpr util::Duration kAskAgain = 1ms;

}  // namespace

void Retransmission::reset() {
  queue_.reset();
  retries_.forget_implied();
}

void Retransmission::start(std::uint32_t psn) {
  window().start(psn & wire::Psn::kMask);
  refresh_retries();
}

void Retransmission::stop() {
  queue_.stop();
  engine_.timers.remove(qp_);
  close_fault();
  pause_.end();
}

void Retransmission::handle_attributes() {
  retries_.set_timeout(qp_.attributes(), engine_.ack_timeout_min);
}

SendEntry* Retransmission::answered_by(std::uint64_t psn) {
  if (!acknowledge(psn)) return nullptr;
  const auto i = window().unanswered();
  return i != window().tail() && window().entry(i).status == WorkStatus::kSuccess
             ? &window().entry(i)
             : nullptr;
}

bool Retransmission::acknowledge(std::uint64_t target) {
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

void Retransmission::advance(std::uint64_t target) {
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

// Retrying ---------------------------------------------------------------------------------------

void Retransmission::handle_sequence_nak() {
  ++qp_.counters().packet_seq_err;
  // While the requester waits, a repeated NAK has no news: everything will be sent again.
  if (pause_.repeats() || use_retry()) rewind();
}

void Retransmission::handle_rnr_nak(std::uint8_t timer_code) {
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

void Retransmission::implied_nak() {
  if (pause_.repeats() || !retries_.begin_implied(window().unacked())) return;
  ++qp_.counters().implied_nak_seq_err;
  if (use_retry()) rewind();
}

/// False if no retry was left: the oldest request has then failed.
bool Retransmission::use_retry() {
  if (retries_.use()) return true;
  ++qp_.counters().transport_retries_exceeded;
  queue_.fail_unanswered(WorkStatus::kTransportRetryExceeded, Reason::kRetriesExceeded);
  return false;
}

/// Goes back to the oldest unanswered packet.
void Retransmission::rewind() {
  window().rewind();
  engine_.timers.stop(qp_, Timer::kAck);
  engine_.mark_ready(qp_);
}

void Retransmission::handle_ack_timeout() {
  engine_.timers.stop(qp_, Timer::kAck);
  if (!state_rules(qp_.state()).finishes || window().all_acknowledged()) return;
  if (!retries_.counts_timeout(engine_.ack_patience)) return arm_ack_timer();
  ++qp_.counters().local_ack_timeout_err;
  retries_.forget_implied();
  if (use_retry()) rewind();
}

void Retransmission::wait_for_rate(util::Time time) {
  if (!pause_.for_timer()) engine_.timers.arm(qp_, Timer::kRnr, time);
  pause_.begin_rate();
}

void Retransmission::handle_rnr_timeout() {
  engine_.timers.stop(qp_, Timer::kRnr);
  // Packets sent before the page fault may still await their acknowledgement.
  if (pause_.for_timer() && qp_.service().reliable && !window().all_acknowledged()) arm_ack_timer();
  pause_.end_timer();
  engine_.mark_ready(qp_);
}

// Page faults ------------------------------------------------------------------------------------

/// True if request `index` now waits for its page. False if there is nothing to wait for and
/// `fault` ends the request. `committed`: bytes of the message already done.
[[gnu::noinline]] bool Retransmission::wait_for_page(std::uint64_t index, Reason fault,
                                                     std::uint64_t committed) {
  if (fault != Reason::kPageAbsent) return false;
  if (pause_.for_page()) return true;
  const auto& e = window().entry(index);
  switch (qp_.queues().open_fault(
      {.kind = e.wants_data() ? PageFaultKind::kReadOrAtomic : PageFaultKind::kSend,
       .cookie = e.request.cookie,
       .committed = static_cast<std::uint32_t>(committed)})) {
    case FaultAnswer::kNobody:
      return false;
    case FaultAnswer::kBusy:
      if (!pause_.for_timer()) engine_.timers.arm(qp_, Timer::kRnr, engine_.now + kAskAgain);
      pause_.begin_timer();
      break;
    case FaultAnswer::kOpened:
      pause_.begin_page(index);
      break;
  }
  // The last packets may not have requested an acknowledgement, so silence means nothing.
  engine_.timers.stop(qp_, Timer::kAck);
  return true;
}

[[gnu::noinline]] void Retransmission::hold_or_refuse(SendEntry& e, Reason fault,
                                                      std::uint64_t committed) {
  if (!wait_for_page(window().cursor(), fault, committed)) {
    e.refuse(fault == Reason::kBeyondMessage ? WorkStatus::kLocalQpOperation
                                             : WorkStatus::kLocalProtection,
             fault);
  }
}

void Retransmission::hold_or_fail(Reason fault, std::uint64_t committed) {
  if (!wait_for_page(window().unanswered(), fault, committed)) {
    return queue_.fail_unanswered(WorkStatus::kLocalProtection, fault);
  }
  rewind();
}

void Retransmission::close_fault() {
  if (!pause_.for_page()) return;
  pause_.end_page();
  qp_.queues().close_fault();
}

bool Retransmission::resume(bool failed) {
  if (!pause_.for_page()) return false;
  close_fault();
  // The request may have been answered meanwhile.
  const auto faulting = pause_.fault_entry();
  if (failed && faulting >= window().unanswered() && faulting < window().tail()) {
    window().entry(faulting).refuse(WorkStatus::kLocalProtection, Reason::kPageNotBrought);
  }
  // In the next turn, when engine_.now is current.
  if (!pause_.for_timer()) engine_.timers.arm(qp_, Timer::kRnr, engine_.now);
  pause_.begin_timer();
  return true;
}

}  // namespace softhca::rdma
