// Methods of TimerQueue on the path of every request and response.
#pragma once

#include "rdma/queue_pair.h"
#include "rdma/timers.h"

namespace softhca::rdma {

inline void TimerQueue::arm(QueuePair& qp, Timer timer, util::Time deadline) {
  auto& timers = qp.timers_;
  armed_ += timers.next() == util::kNever;
  timers[timer] = deadline;
  if (timers.slot == Timers::kNotQueued || deadline < timers.queued_at) arm_in_queue(qp);
}

inline void TimerQueue::stop(QueuePair& qp, Timer timer) {
  auto& timers = qp.timers_;
  if (timers[timer] == util::kNever) return;
  timers[timer] = util::kNever;
  armed_ -= timers.next() == util::kNever;
}

inline bool TimerQueue::is_armed(const QueuePair& qp, Timer timer) {
  return qp.timers_[timer] != util::kNever;
}

inline util::Time TimerQueue::next() {
  // Usually everything is acknowledged. QPs keep their entries, since they will send again; an
  // entry without a deadline is skipped when its old one comes up.
  if (armed_ == 0) return util::kNever;
  return heap_.front().qp->timers_.next() != util::kNever ? first_key_ : next_armed();
}

}  // namespace softhca::rdma
