// The READ and atomic responses of a responder that wait to be sent, in PSN order. Their memory is
// a ring of the engine's pool (spare_rings.h): a QP has it while responses wait. Internal.
#pragma once

#include <algorithm>
#include <cstddef>

#include "rdma/answer.h"
#include "rdma/spare_rings.h"

namespace softhca::rdma {

class Engine;

class AnswerRing {
 public:
  /// A ring first has this size, and then doubles.
  static constexpr std::size_t kFirst = 4;

  explicit AnswerRing(Engine& engine) : engine_(engine) {}
  ~AnswerRing() { give(); }
  AnswerRing(const AnswerRing&) = delete;
  AnswerRing& operator=(const AnswerRing&) = delete;

  bool empty() const { return count_ == 0; }
  std::size_t size() const { return count_; }
  /// Responses to first-time requests. Repeated ones may stem from a late copy of an old request.
  std::size_t firsts() const { return count_ - repeats_; }
  /// @pre not empty()
  Answer& front() { return at(0); }
  /// True if a response waits that covers this PSN.
  bool covers(wire::Psn psn);

  /// Makes room for `count` responses to first-time requests, and as many again for duplicates.
  void allow(std::size_t count) { max_ = std::max({max_, kFirst, 2 * count}); }
  /// True if one more repeated response leaves room for `firsts` others.
  bool may_repeat(std::size_t firsts) const { return repeats_ + firsts < max_; }
  void push(const Answer& answer);
  void pop_front() {
    repeats_ -= front().repeated;
    first_ = (first_ + 1) & (ring_->size - 1);
    --count_;
  }
  /// Removes the responses that begin at `psn` or later. True if there were any.
  bool drop_from(wire::Psn psn);
  void clear() { count_ = repeats_ = 0; }
  /// Returns the memory if the ring is empty and other QPs may need it.
  void give_back();
  /// clear(), returns the memory, and allows nothing.
  void reset();

 private:
  using Ring = SpareRings<Answer>::Ring;

  Answer& at(std::size_t i) { return ring_->entries[(first_ + i) & (ring_->size - 1)]; }
  void grow();
  void give();

  Engine& engine_;
  Ring* ring_ = nullptr;  ///< null: nothing waits
  std::size_t max_ = 0;   ///< most responses that may wait
  std::size_t first_ = 0;
  std::size_t count_ = 0;
  std::size_t repeats_ = 0;  ///< repeated responses among them
};

}  // namespace softhca::rdma
