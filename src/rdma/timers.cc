#include "rdma/timers.h"

#include <utility>

#include "rdma/queue_pair.h"

namespace softhca::rdma {

using util::kNever;
using util::Time;

namespace {

constexpr unsigned kStoppedAtOnce = 8;

}  // namespace

void TimerQueue::place(std::size_t slot, const Place& place) {
  heap_[slot] = place;
  place.qp->timers_.slot = slot;
  ++moves_;
}

void TimerQueue::sift_up(std::size_t slot) {
  const auto moved = heap_[slot];
  while (slot != 0) {
    const auto parent = (slot - 1) / 2;
    if (heap_[parent].key <= moved.key) break;
    place(slot, heap_[parent]);
    slot = parent;
  }
  place(slot, moved);
}

void TimerQueue::sift_down(std::size_t slot) {
  const auto moved = heap_[slot];
  for (;;) {
    auto child = 2 * slot + 1;
    if (child >= heap_.size()) break;
    if (child + 1 < heap_.size() && heap_[child + 1].key < heap_[child].key) ++child;
    if (moved.key <= heap_[child].key) break;
    place(slot, heap_[child]);
    slot = child;
  }
  place(slot, moved);
}

/// Takes over the only heap entry if its QP has no deadline any more. This is the case when QPs
/// send in turn and each is acknowledged before the next sends.
inline bool TimerQueue::take_only_place(QueuePair& qp) {
  if (heap_.size() != 1) return false;
  auto& only = heap_.front();
  auto& timers = only.qp->timers_;
  if (timers.next() != kNever) return false;
  timers.slot = Timers::kNotQueued;
  only.key = qp.timers_.queued_at;
  only.qp = &qp;
  qp.timers_.slot = 0;
  ++moves_;
  return true;
}

/// The QP has a new deadline, earlier than its heap entry, or no entry.
void TimerQueue::arm_in_queue(QueuePair& qp) {
  auto& timers = qp.timers_;
  timers.queued_at = timers.next();
  if (timers.slot == Timers::kNotQueued) {
    if (!take_only_place(qp)) {
      heap_.push_back({timers.queued_at, &qp});
      sift_up(heap_.size() - 1);
    }
  } else {
    heap_[timers.slot].key = timers.queued_at;
    sift_up(timers.slot);
  }
  note_first();
}

void TimerQueue::remove(QueuePair& qp) {
  auto& timers = qp.timers_;
  armed_ -= timers.next() != kNever;
  timers.deadlines.fill(kNever);
  const auto slot = std::exchange(timers.slot, Timers::kNotQueued);
  if (slot == Timers::kNotQueued) return;
  const auto last = heap_.back();
  heap_.pop_back();
  if (last.qp != &qp) {
    place(slot, last);
    sift_up(slot);
    sift_down(last.qp->timers_.slot);
  }
  note_first();
}

void TimerQueue::settle_first() {
  auto& first = heap_.front();
  auto& timers = first.qp->timers_;
  if (timers.next() == kNever) {
    remove(*first.qp);
  } else {
    first.key = timers.queued_at = timers.next();
    sift_down(0);
    note_first();
  }
}

QueuePair* TimerQueue::expired(Time now, std::int64_t& work) {
  for (; work > 0 && due(now); work -= kSettleWork) {
    if (heap_.front().qp->timers_.next() <= now) return heap_.front().qp;
    settle_first();
  }
  return nullptr;
}

Time TimerQueue::next_armed() {
  // A guest can have the requests of all its QPs acknowledged together. Entries not inspected here
  // are updated when their old deadlines come up.
  for (unsigned i = 0; i != kStoppedAtOnce; ++i) {
    if (heap_.empty() || heap_.front().qp->timers_.next() != kNever) break;
    settle_first();
  }
  return first_key_;
}

}  // namespace softhca::rdma
