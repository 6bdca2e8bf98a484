// How long the turns of a loop take: for people, and for tests of isolation.
#pragma once

#include <algorithm>
#include <cstdint>

#include "util/clock.h"
#include "util/inspect.h"

namespace softhca::vfio_user {

class TurnTimes {
 public:
  static constexpr util::Duration kLong = std::chrono::milliseconds(2);

  /// `measure`: read the clock of the thread at the end of each turn, a system call.
  explicit TurnTimes(bool measure) : measure_(measure) {}

  /// Units (util::WorkBudget) of messages or functions, in the turn that is under way.
  void add_work(std::int64_t units) { work_ += units; }
  /// The turn has ended; the loop may sleep now, which costs the thread no time of its own.
  void end_turn();

  void inspect(util::InspectNode& out) const;

 private:
  bool measure_;
  std::uint64_t turns_ = 0;
  std::int64_t work_ = 0;  ///< of the turn that is under way
  std::int64_t longest_work_ = 0;
  util::Duration last_{};     ///< of the thread's clock, at the end of the last turn
  util::Duration longest_{};  ///< on the thread's clock
  std::uint64_t long_turns_ = 0;
};

}  // namespace softhca::vfio_user
