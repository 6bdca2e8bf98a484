#include "rdma/timers.h"

#include <utility>

#include "rdma/queue_pair.h"

namespace softhca::rdma {

using util::kNever;
using util::Time;

namespace {

constexpr unsigned kStoppedAtOnce = 8;

}  // namespace

Time TimerQueue::key(const QueuePair* qp) { return qp->timers_.queued_at; }

void TimerQueue::place(std::size_t slot, QueuePair* qp) {
  heap_[slot] = qp;
  qp->timers_.slot = slot;
}

void TimerQueue::sift_up(std::size_t slot) {
  auto* const qp = heap_[slot];
  while (slot != 0) {
    const auto parent = (slot - 1) / 2;
    if (key(heap_[parent]) <= key(qp)) break;
    place(slot, heap_[parent]);
    slot = parent;
  }
  place(slot, qp);
}

void TimerQueue::sift_down(std::size_t slot) {
  auto* const qp = heap_[slot];
  for (;;) {
    auto child = 2 * slot + 1;
    if (child >= heap_.size()) break;
    if (child + 1 < heap_.size() && key(heap_[child + 1]) < key(heap_[child])) ++child;
    if (key(qp) <= key(heap_[child])) break;
    place(slot, heap_[child]);
    slot = child;
  }
  place(slot, qp);
}

/// The QP has a new deadline, which is earlier than its place says, if it has one.
void TimerQueue::arm_in_queue(QueuePair& qp) {
  auto& timers = qp.timers_;
  timers.queued_at = timers.next();
  if (timers.slot == Timers::kNotQueued) {
    heap_.push_back(&qp);
    sift_up(heap_.size() - 1);
  } else {
    sift_up(timers.slot);
  }
  note_first();
}

void TimerQueue::remove(QueuePair& qp) {
  auto& timers = qp.timers_;
  timers.deadlines.fill(kNever);
  const auto slot = std::exchange(timers.slot, Timers::kNotQueued);
  if (slot == Timers::kNotQueued) return;
  auto* const last = heap_.back();
  heap_.pop_back();
  if (last != &qp) {
    place(slot, last);
    sift_up(slot);
    sift_down(last->timers_.slot);
  }
  note_first();
}

void TimerQueue::settle_first() {
  auto& timers = heap_.front()->timers_;
  if (timers.next() == kNever) {
    remove(*heap_.front());
  } else {
    timers.queued_at = timers.next();
    sift_down(0);
    note_first();
  }
}

QueuePair* TimerQueue::expired(Time now, std::int64_t& work) {
  for (; work > 0 && due(now); work -= kSettleWork) {
    if (heap_.front()->timers_.next() <= now) return heap_.front();
    settle_first();
  }
  return nullptr;
}

Time TimerQueue::next_armed() {
  // A guest can have its QPs answered all at once: those that are not looked at here are put right
  // when their old deadlines come.
  for (unsigned i = 0; i != kStoppedAtOnce; ++i) {
    if (heap_.empty() || heap_.front()->timers_.next() != kNever) break;
    settle_first();
  }
  return first_key_;
}

}  // namespace softhca::rdma
