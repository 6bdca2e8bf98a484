// Doorbells that wait to be evaluated (SDXI 4.3.3), from software and from DSC_CXT_START: in order
// of arrival, each context at most once. Allocates nothing.
//
// A doorbell's value only signals that there may be work; Write_Index gives the amount, as step 3
// allows. So a wrong value cannot hide another doorbell.
#pragma once

#include <cassert>
#include <cstdint>
#include <vector>

#include "sdxi/format.h"

namespace softhca::sdxi {

class Doorbells {
 public:
  /// Doorbells of contexts 0 to `contexts` - 1.
  explicit Doorbells(std::size_t contexts)
      : values_(contexts), waits_(contexts), order_(contexts) {}

  /// The value that software wrote last; only inspection shows it.
  void set_value(ContextNumber number, std::uint64_t value) { values_[number] = value; }
  std::uint64_t value(ContextNumber number) const { return values_[number]; }

  /// Queues the context's doorbell for evaluation. A doorbell that is already queued covers both.
  void note(ContextNumber number) {
    if (waits_[number]) return;
    waits_[number] = true;
    order_[noted_++ % order_.size()] = number;
  }
  bool empty() const { return taken_ == noted_; }
  /// Removes and returns the oldest. @pre not empty
  ContextNumber take() {
    assert(!empty());
    const auto number = order_[taken_++ % order_.size()];
    waits_[number] = false;
    return number;
  }
  void clear() {
    while (!empty()) (void)take();
  }

  /// Mark behind the newest doorbell. Once it is passed, all doorbells queued now have been taken.
  std::uint64_t end() const { return noted_; }
  bool passed(std::uint64_t end) const { return taken_ >= end; }

 private:
  std::vector<std::uint64_t> values_;
  std::vector<bool> waits_;
  std::vector<ContextNumber> order_;  ///< contexts queued, by arrival number modulo its size
  std::uint64_t noted_ = 0;
  std::uint64_t taken_ = 0;
};

}  // namespace softhca::sdxi
