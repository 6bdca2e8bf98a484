// Durations of a loop's turns, for users and for tests of isolation.
#pragma once

#include <algorithm>
#include <cstdint>

#include "util/clock.h"
#include "util/inspect.h"

namespace softhca::vfio_user {

class TurnTimes {
 public:
  static constexpr util::Duration kLong = std::chrono::milliseconds(2);

  /// `measure`: read the thread's clock at the end of each turn, by a system call.
  explicit TurnTimes(bool measure) : measure_(measure) {}

  /// Adds units (util::WorkBudget) of messages or functions to the current turn.
  void add_work(std::int64_t units) { work_ += units; }
  /// Ends the turn. The loop may sleep then, which does not count on the thread's clock.
  void end_turn();

  void inspect(util::InspectNode& out) const;

 private:
  bool measure_;
  std::uint64_t turns_ = 0;
  std::int64_t work_ = 0;  ///< of the current turn
  std::int64_t longest_work_ = 0;
  util::Duration last_{};     ///< the thread's clock at the end of the last turn
  util::Duration longest_{};  ///< on the thread's clock
  std::uint64_t long_turns_ = 0;
};

}  // namespace softhca::vfio_user
