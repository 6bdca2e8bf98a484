// Work that a part may do before others have their turn. It is counted, not timed, so that a
// repeated run behaves the same.
#pragma once

#include <algorithm>
#include <cstdint>

namespace softhca::util {

/// The remaining work. One unit is about a nanosecond of an ordinary processor: precise enough to
/// add up work of different kinds, but no measurement.
class WorkBudget {
 public:
  explicit constexpr WorkBudget(std::int64_t units) : granted_(units) {}

  /// Charges work that was done, whether enough was left for it or not.
  constexpr void charge(std::int64_t units) { done_ += units; }
  /// Grants a new turn, less the work beyond earlier grants. Unused work is not saved.
  constexpr void grant(std::int64_t units) { granted_ = std::min(granted_, done_) + units; }
  /// True if others should have their turn.
  constexpr bool spent() const { return granted_ <= done_; }
  /// Negative if overdrawn.
  constexpr std::int64_t left() const { return granted_ - done_; }
  /// Everything charged so far.
  constexpr std::int64_t done() const { return done_; }

 private:
  std::int64_t granted_;  ///< limit of done_
  std::int64_t done_ = 0;
};

}  // namespace softhca::util
