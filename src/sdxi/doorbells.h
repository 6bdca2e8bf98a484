// Doorbells that wait to be evaluated (SDXI 4.3.3), those of software and those that a
// DSC_CXT_START brings: in order of arrival, each context at most once. Allocates nothing.
//
// A value only tells that there may be work. How much, Write_Index tells, which step 3 allows: no
// value, however wrong, can hide another.
#pragma once

#include <cassert>
#include <cstdint>
#include <vector>

#include "sdxi/format.h"

namespace softhca::sdxi {

class Doorbells {
 public:
  /// Of contexts 0 to `contexts` - 1.
  explicit Doorbells(std::size_t contexts)
      : values_(contexts), waits_(contexts), order_(contexts) {}

  /// What software wrote last; only inspection shows it.
  void set_value(ContextNumber number, std::uint64_t value) { values_[number] = value; }
  std::uint64_t value(ContextNumber number) const { return values_[number]; }

  /// The context's doorbell is to be evaluated. If it waits already, that is enough for both.
  void note(ContextNumber number) {
    if (waits_[number]) return;
    waits_[number] = true;
    order_[noted_++ % order_.size()] = number;
  }
  bool empty() const { return taken_ == noted_; }
  /// The one that came first. @pre not empty
  ContextNumber take() {
    assert(!empty());
    const auto number = order_[taken_++ % order_.size()];
    waits_[number] = false;
    return number;
  }
  void clear() {
    while (!empty()) (void)take();
  }

  /// Where the line ends now; when that is passed, all that wait now have been taken.
  std::uint64_t end() const { return noted_; }
  bool passed(std::uint64_t end) const { return taken_ >= end; }

 private:
  std::vector<std::uint64_t> values_;
  std::vector<bool> waits_;
  std::vector<ContextNumber> order_;  ///< those that wait, by arrival modulo its size
  std::uint64_t noted_ = 0;
  std::uint64_t taken_ = 0;
};

}  // namespace softhca::sdxi
