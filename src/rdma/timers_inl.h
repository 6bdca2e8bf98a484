// Those methods of TimerQueue that every request and every answer pass.
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

inline util::Time TimerQueue::next() {
  // Mostly all is answered. QPs keep their places, since they send again; those that do not are
  // passed over when their old deadlines come.
  if (armed_ == 0) return util::kNever;
  return heap_.front().qp->timers_.next() != util::kNever ? first_key_ : next_armed();
}

}  // namespace softhca::rdma
