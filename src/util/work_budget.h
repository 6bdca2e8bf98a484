// Work that one may do before others have their turn. It is counted, not clocked, so that a run
// that is repeated goes the same way.
#pragma once

#include <algorithm>
#include <cstdint>

namespace softhca::util {

/// What is left of it. One unit is about a nanosecond of an ordinary processor: good enough to add
/// up work of different kinds, and no measurement.
class WorkBudget {
 public:
  explicit constexpr WorkBudget(std::int64_t units) : granted_(units) {}

  /// Work that was done, whether there was enough left for it or not.
  constexpr void charge(std::int64_t units) { done_ += units; }
  /// A new turn. What was overdrawn is paid first, and what was not used is not saved.
  constexpr void grant(std::int64_t units) { granted_ = std::min(granted_, done_) + units; }
  /// Time to let others go on.
  constexpr bool spent() const { return granted_ <= done_; }
  /// Below 0: more was done than there was.
  constexpr std::int64_t left() const { return granted_ - done_; }
  /// All that was ever charged.
  constexpr std::int64_t done() const { return done_; }

 private:
  std::int64_t granted_;  ///< up to this much may have been done
  std::int64_t done_ = 0;
};

}  // namespace softhca::util
