// Work that is done within a turn, and charged to the turn's budget later (work_budget.h).
#pragma once

#include <cstdint>
#include <utility>

namespace softhca::util {

/// Adds up the work of parts that no WorkBudget is passed to. The code that runs the turn drains it
/// into the budget.
class WorkMeter {
 public:
  /// Pending work at which a part should stop, and let others have their turn.
  static constexpr std::int64_t kBudget = 50'000;

  /// Charges work that was done, whether the budget allows it or not.
  void charge(std::int64_t units) { pending_ += units; }
  /// Returns and clears the pending work.
  std::int64_t drain() { return std::exchange(pending_, 0); }
  /// True if work is pending. Most packets charge none.
  bool any() const { return pending_ != 0; }
  /// The work that drain() would return.
  std::int64_t pending() const { return pending_; }
  /// True if so much work is pending that other functions should run before the next packet.
  bool over_budget() const { return pending_ >= kBudget; }

 private:
  std::int64_t pending_ = 0;
};

}  // namespace softhca::util
