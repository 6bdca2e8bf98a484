// Those methods of TimerQueue that every request and every answer pass.
#pragma once

#include "rdma/queue_pair.h"
#include "rdma/timers.h"

namespace softhca::rdma {

inline void TimerQueue::arm(QueuePair& qp, Timer timer, util::Time deadline) {
  auto& timers = qp.timers_;
  timers[timer] = deadline;
  if (timers.slot == Timers::kNotQueued || deadline < timers.queued_at) arm_in_queue(qp);
}

inline void TimerQueue::stop(QueuePair& qp, Timer timer) { qp.timers_[timer] = util::kNever; }

inline util::Time TimerQueue::next() {
  if (heap_.empty()) return util::kNever;
  if (heap_.front()->timers_.next() != util::kNever) return first_key_;
  // The only QP that waits has just been answered. It keeps its place: mostly it sends again.
  if (heap_.size() == 1) return util::kNever;
  return next_armed();
}

}  // namespace softhca::rdma
