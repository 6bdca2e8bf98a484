// Decides how the thread of the devices spends the time between two rounds: it polls often while
// there is work, and sleeps while there is none.
//
// | pace      | while                                        | until its next round, the thread |
// |-----------|----------------------------------------------|----------------------------------|
// | kSpins    | there is work, or soon will be               | goes on                          |
// | kStandsBy | the program polls, and so drives its devices | waits 1 ms; frames do not wake it|
// | kDozes    | there has been no work for a short time      | waits 20 us, later 1 ms          |
// | kSleeps   | there has been no work for 50 ms             | traps doorbells, and waits 1 s   |
//
// A wakeup ends a wait early. Without queues there are no doorbells to trap: the waits of kDozes
// then grow to 1 s. On a crowded machine waits are longer.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "os/adaptive_poll.h"
#include "util/clock.h"

namespace softhca::door {

enum class Pace : std::uint8_t { kSpins, kStandsBy, kDozes, kSleeps };

/// Only the thread of the devices uses it.
class SleepPolicy {
 public:
  /// Shortest time to the next event for which the thread traps doorbells.
  static constexpr util::Duration kSleepMin = std::chrono::milliseconds(20);
  /// Interval between polls of a sleeping thread, and between attempts to sleep.
  static constexpr util::Duration kSleepMax = std::chrono::seconds(1);
  /// Longest interval between polls for doorbells that are not trapped.
  static constexpr util::Duration kDozeMax = std::chrono::milliseconds(1);
  /// Idle time after which polling stops.
  static constexpr util::Duration kCalm = std::chrono::milliseconds(50);
  /// While the program's own polls drive the devices: at least kPollsMin of them in this time.
  static constexpr util::Duration kStandBy = std::chrono::milliseconds(1);
  static constexpr std::uint64_t kPollsMin = 100;

  /// The load of the processors, as FreeProcessors measures it.
  struct Load {
    bool has_free = false;  ///< a processor is free for the thread
    unsigned crowd = 1;     ///< threads per processor
  };
  /// The work that may come.
  struct Expected {
    bool doorbells = false;  ///< there are queues
    util::Time next_event = util::kNever;
  };

  /// `may_trap`: whether doorbells may be trapped.
  SleepPolicy(bool may_trap, util::Time now) : may_trap_(may_trap), calm_since_(now) {}

  /// Begins a round. `polls`: turns by polls of the program so far.
  void begin_round(std::uint64_t polls, util::Time now);
  /// A program that polls drives its devices itself: frames need not wake the thread, and doorbells
  /// should not be trapped.
  bool program_polls() const { return program_polls_; }
  /// To be called after each turn, with what it found. True: the thread may wait.
  bool may_wait(bool busy, std::size_t packets, const Load& load, util::Time now);
  /// Ends a round, whose turn was `busy`. `waits`: the result of may_wait(), and no device objects.
  Pace end_round(bool busy, bool waits, const Expected& expected, util::Time now);

  /// Whether the last turn found no work.
  bool is_idle() const { return idle_ != 0; }
  /// How long kStandsBy waits.
  static util::Duration stand_by(const Load& load);
  /// To be called after that, with the polls so far.
  void judge_polls(std::uint64_t polls, const Load& load, util::Time now);
  /// How long kDozes waits.
  util::Duration doze(const Load& load, const Expected& expected, util::Time now) const;
  /// A wait has ended because something came.
  void note_wakeup() { idle_ = 0; }
  /// The thread could not sleep at `now`: it tries again later.
  void note_no_sleep(util::Time now) { calm_since_ = now + kSleepMax; }

 private:
  /// How long the thread polls by itself after there were fewer polls: minimum, maximum.
  static constexpr util::Duration kDistrustMin = std::chrono::milliseconds(20);
  static constexpr util::Duration kDistrustMax = std::chrono::seconds(1);

  bool may_trap_;
  unsigned idle_ = 0;           ///< turns without work since the last work or wakeup
  std::uint64_t polls_ = 0;     ///< as of the last begin_round()
  bool has_polled_ = false;     ///< the program, since the round before
  bool program_polls_ = false;  ///< the same, and the thread relies on it
  util::Time trusts_from_{};    ///< it relies on polls from then on
  util::Duration distrust_ = kDistrustMin;
  util::Time calm_since_;
  util::Time lingers_until_{};  ///< the thread stays awake until then
  /// After work came, the thread keeps polling if that has paid off and a processor is free.
  os::AdaptivePoll looks_on_{std::chrono::microseconds(100)};
};

}  // namespace softhca::door
