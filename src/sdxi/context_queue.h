// Queues of contexts that wait for a turn, for a time, or for the end of a stop. None of them
// allocates after construction.
#pragma once

#include <cassert>
#include <utility>
#include <vector>

#include "sdxi/context.h"

namespace softhca::sdxi {

/// First come, first served. A context is in at most one queue, once; it knows its queue and its
/// neighbors, so that a reset of 65,536 contexts removes each in constant time.
class ContextQueue {
 public:
  bool empty() const { return first_ == nullptr; }
  /// @pre in no queue
  void push(Context& context) {
    assert(!context.queued());
    context.queue = this;
    context.previous = last_;
    context.next = nullptr;
    (first_ == nullptr ? first_ : last_->next) = &context;
    last_ = &context;
  }
  /// Queues the context before all others. @pre in no queue
  void push_first(Context& context) {
    assert(!context.queued());
    context.queue = this;
    context.previous = nullptr;
    context.next = first_;
    (first_ == nullptr ? last_ : first_->previous) = &context;
    first_ = &context;
  }
  /// @pre not empty
  Context& pop() {
    auto& context = *first_;
    remove(context);
    return context;
  }
  /// No effect on a context that is not in this queue.
  void remove(Context& context) {
    if (context.queue != this) return;
    (context.previous == nullptr ? first_ : context.previous->next) = context.next;
    (context.next == nullptr ? last_ : context.next->previous) = context.previous;
    context.queue = nullptr;
  }

 private:
  Context* first_ = nullptr;
  Context* last_ = nullptr;
};

/// Contexts by the time at which they are due: a binary heap, in which each context knows its
/// position. A context is in at most one.
class WaitQueue {
 public:
  explicit WaitQueue(std::size_t contexts) { heap_.reserve(contexts); }

  bool empty() const { return heap_.empty(); }
  /// When the first context is due; kNever if none waits.
  util::Time next() const { return heap_.empty() ? util::kNever : heap_.front()->wake_at; }
  /// Sets the time until which `context` waits, whether it waited before or not.
  void set(Context& context, util::Time at) {
    context.wake_at = at;
    if (context.wait_place == 0) {
      heap_.push_back(&context);
      context.wait_place = heap_.size();
    }
    sink(rise(context.wait_place));
  }
  /// No effect on a context that does not wait.
  void remove(Context& context) {
    const auto place = context.wait_place;
    if (place == 0) return;
    auto* last = heap_.back();
    heap_.pop_back();
    context.wait_place = 0;
    if (last == &context) return;
    put(place, *last);
    sink(rise(place));
  }
  /// @pre not empty
  Context& pop() {
    auto& context = *heap_.front();
    remove(context);
    return context;
  }

 private:
  // Positions are counted from 1: the children of n are 2n and 2n + 1.
  Context& at(std::size_t place) const { return *heap_[place - 1]; }
  void put(std::size_t place, Context& context) {
    heap_[place - 1] = &context;
    context.wait_place = place;
  }
  void swap(std::size_t a, std::size_t b) {
    auto &first = at(a), &second = at(b);
    put(a, second), put(b, first);
  }
  std::size_t rise(std::size_t place) {
    for (; place > 1 && at(place).wake_at < at(place / 2).wake_at; place /= 2) {
      swap(place, place / 2);
    }
    return place;
  }
  void sink(std::size_t place) {
    for (;;) {
      auto child = 2 * place;
      if (child > heap_.size()) return;
      if (child < heap_.size() && at(child + 1).wake_at < at(child).wake_at) ++child;
      if (at(place).wake_at <= at(child).wake_at) return;
      swap(place, child);
      place = child;
    }
  }

  std::vector<Context*> heap_;
};

/// Contexts that are stopping, in the order in which their stops began.
class StopList {
 public:
  bool empty() const { return first_ == nullptr; }
  Context* first() const { return first_; }
  /// @pre in no list
  void push(Context& context) {
    context.stop_before = last_;
    context.stop_after = nullptr;
    (last_ == nullptr ? first_ : last_->stop_after) = &context;
    last_ = &context;
  }
  /// @pre in this list
  void remove(Context& context) {
    auto *before = context.stop_before, *after = context.stop_after;
    (before == nullptr ? first_ : before->stop_after) = after;
    (after == nullptr ? last_ : after->stop_before) = before;
    context.stop_before = context.stop_after = nullptr;
  }

 private:
  Context* first_ = nullptr;
  Context* last_ = nullptr;
};

}  // namespace softhca::sdxi
