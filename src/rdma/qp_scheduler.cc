#include "rdma/qp_scheduler.h"

#include "rdma/requester.h"
#include "rdma/responder.h"

namespace softhca::rdma {

using util::Time;

namespace {

constexpr auto kQuantum = Engine::kQuantum;
constexpr auto kStepWork = Engine::kStepWork;
/// Packets that a rate-limited QP sends before its rate is checked again.
constexpr unsigned kSlowQuantum = 4;

/// Number of steps that `work` pays for, at least one.
unsigned steps_for(std::int64_t work) {
  const auto step = std::int64_t{kStepWork};
  return static_cast<unsigned>(std::max<std::int64_t>((work + step - 1) / step, 1));
}

/// True if a QP whose turn has taken `used` steps of `quota` may do more.
bool goes_on(const Engine& engine, unsigned used, unsigned quota) {
  return used < quota && !engine.keys.work().over_budget();
}

}  // namespace

[[gnu::always_inline]] inline unsigned QpScheduler::serve(Engine& engine, QueuePair& qp,
                                                          unsigned quota) {
  // The common case first: a QP in RTS, which only responds and sends.
  unsigned used = 0;
  if (qp.state_ == QpState::kRts) used += qp.responder_->answer(quota);
  if (qp.state_ == QpState::kRts && goes_on(engine, used, quota)) {
    used += qp.requester_->send(quota - used);
  }
  if (qp.state_ != QpState::kRts && goes_on(engine, used, quota)) {
    used += serve_in_any_state(engine, qp, quota - used);
  }
  if (engine.rings.scarce()) qp.requester_->queue().window().give_back();
  return used;
}

unsigned QpScheduler::serve_plain(Engine& engine, QueuePair& qp, unsigned quota) {
  return serve(engine, qp, quota);
}

Time QpScheduler::run_due(util::WorkBudget& work) {
  auto& engine = engine_;
  const auto allowed = work.left();
  auto left = engine.timers.due(engine.now) ? expire_timers(allowed) : allowed;
  if (!engine.unreleased.empty()) take_released();
  const auto sent = engine.counters.tx_bytes;
  while (auto* qp = engine.ready.pop_front()) {
    const auto quota = left >= kQuantum * kStepWork ? kQuantum : steps_for(left);
    const auto used =
        engine.congestion.active() ? serve_slow(engine, *qp, quota) : serve(engine, *qp, quota);
    bool more = used == quota;
    left -= std::max(1u, used) * kStepWork;
    auto& extra = engine.keys.work();
    if (extra.any()) {
      more = more || extra.over_budget();
      left -= extra.drain();
    }
    if (more) engine.mark_ready(*qp);  // at the end of the queue
    if (left <= 0) break;
  }
  const auto bytes = engine.counters.tx_bytes - sent;
  work.charge(allowed - left + static_cast<std::int64_t>(bytes / Engine::kBytesPerUnit));
  const bool idle = engine.ready.empty() && engine.unreleased.empty();
  return idle ? std::max(engine.timers.next(), engine.now) : engine.now;
}

/// The fabric releases frames in the order of their numbers, and QPs are queued in nearly that
/// order. A QP that was queued again for a later frame may hold up those behind it for a while.
void QpScheduler::take_released() {
  while (auto* qp = engine_.unreleased.front()) {
    if (!engine_.released(qp->awaited_frame_)) return;
    engine_.unreleased.pop_front();
    engine_.mark_ready(*qp);
  }
}

/// Returns the remaining work.
std::int64_t QpScheduler::expire_timers(std::int64_t left) {
  while (auto* qp = engine_.timers.expired(engine_.now, left)) {
    expire(*qp);
    left -= kStepWork;
  }
  return left;
}

void QpScheduler::expire(QueuePair& qp) {
  if (qp.timers_[Timer::kAck] <= engine_.now) qp.requester_->handle_ack_timeout();
  if (qp.timers_[Timer::kRnr] <= engine_.now) qp.requester_->handle_rnr_timeout();
}

/// The turn of a QP outside RTS. serve() has already done, or ruled out, the work of RTS.
[[gnu::noinline]] unsigned QpScheduler::serve_in_any_state(Engine& engine, QueuePair& qp,
                                                           unsigned quota) {
  // Each step may change the state.
  unsigned used = 0;
  if (state_rules(qp.state_).receives) used += qp.responder_->answer(quota);
  if (goes_on(engine, used, quota) && state_rules(qp.state_).finishes) {
    used += qp.requester_->send(quota - used);
  }
  if (goes_on(engine, used, quota) && state_rules(qp.state_).flushes_send) {
    used += qp.requester_->queue().flush(quota - used);
  }
  // Flushed receives follow the completion of the send that took the QP to ERR.
  if (goes_on(engine, used, quota) && state_rules(qp.state_).flushes_receive &&
      !qp.requester_->queue().waits_for_release()) {
    used += qp.responder_->flush(quota - used);
  }
  if (goes_on(engine, used, quota)) report(engine, qp);
  return used;
}

/// Serves a QP while any QP, perhaps this one, is rate-limited.
[[gnu::noinline]] unsigned QpScheduler::serve_slow(Engine& engine, QueuePair& qp, unsigned quota) {
  engine.congestion.sweep(engine.now);
  if (qp.flow_ == 0) return serve_plain(engine, qp, quota);
  // Responses first, as they are not rate-limited. They end a turn over its budget.
  const auto answered = state_rules(qp.state_).receives ? qp.responder_->answer(quota) : 0;
  if (!goes_on(engine, answered, quota)) return answered;
  const auto before = engine.counters.tx_bytes;
  const auto steps = std::min(quota - answered, kSlowQuantum);
  const auto used = serve_plain(engine, qp, steps);
  const auto next = engine.congestion.charge(qp, engine.counters.tx_bytes - before, engine.now);
  if (next > engine.now) {
    qp.requester_->wait_for_rate(next);
  } else if (used == steps) {
    engine.mark_ready(qp);
  }
  return answered + used;
}

/// Raises the events for a drained QP and for the last WQE.
void QpScheduler::report(Engine& engine, QueuePair& qp) {
  if (qp.state_ == QpState::kSqDrain && qp.requester_->queue().window().idle() &&
      !qp.requester_->queue().drain_reported) {
    qp.requester_->queue().drain_reported = true;
    engine.event(qp, QpEvent::kSqDrained, Reason::kDrained);
  }
  // The receive request that the QP took is flushed only when its sends are complete.
  if (qp.state_ == QpState::kError && qp.options_.uses_srq && !qp.last_wqe_reached_ &&
      !qp.requester_->queue().waits_for_release()) {
    qp.last_wqe_reached_ = true;
    engine.event(qp, QpEvent::kLastWqeReached, Reason::kLastWqe);
  }
}

}  // namespace softhca::rdma
