// Work that one may do before others have their turn. It is counted, not clocked, so that a run
// that is repeated goes the same way.
#pragma once

#include <cstdint>

namespace softhca::util {

/// What is left of it. One unit is about a nanosecond of an ordinary processor: good enough to add
/// up work of different kinds, and no measurement.
class WorkBudget {
 public:
  explicit constexpr WorkBudget(std::int64_t units) : left_(units) {}

  /// Work that was done, whether there was enough left for it or not.
  constexpr void charge(std::int64_t units) { left_ -= units; }
  /// Time to let others go on.
  constexpr bool spent() const { return left_ <= 0; }
  /// Below 0: more was done than there was.
  constexpr std::int64_t left() const { return left_; }

 private:
  std::int64_t left_;
};

}  // namespace softhca::util
