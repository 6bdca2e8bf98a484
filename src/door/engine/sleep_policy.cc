#include "door/engine/sleep_policy.h"

#include <algorithm>

namespace softhca::door {
namespace {

/// After this many packets in a turn a long message is in progress: keep polling for kLinger
/// instead of sleeping.
constexpr std::size_t kManyPackets = 16;
constexpr util::Duration kLinger = std::chrono::microseconds(50);
/// Source of looks_on_: any message draws an answer soon if the program polls its memory.
constexpr unsigned kAnything = 0;
/// Shortest interval between polls of a thread that waits.
constexpr util::Duration kDozeMin = std::chrono::microseconds(20);

/// More threads per processor than this are a crowd. A wait then grows with each of them, so that
/// polling stays a small part of the load.
constexpr unsigned kCrowd = 3;
constexpr util::Duration kWaitPerThread = std::chrono::microseconds(500);

/// Lengthens a wait on a crowded machine: otherwise fruitless polling would be most of the load.
/// The peers wait for a processor anyway.
util::Duration in_crowd(util::Duration wait, unsigned crowd) {
  return crowd > kCrowd ? std::max(wait, kWaitPerThread * crowd) : wait;
}

}  // namespace

void SleepPolicy::begin_round(std::uint64_t polls, util::Time now) {
  has_polled_ = polls != polls_;
  program_polls_ = has_polled_ && now >= trusts_from_;
  polls_ = polls;
}

bool SleepPolicy::may_wait(bool busy, std::size_t packets, const Load& load, util::Time now) {
  if (packets >= kManyPackets) lingers_until_ = now + kLinger;
  if (busy && !program_polls_ && load.has_free) looks_on_.message(kAnything, now);
  return !busy && now >= lingers_until_ && !looks_on_.look(now);
}

Pace SleepPolicy::end_round(bool busy, bool waits, const Expected& expected, util::Time now) {
  idle_ = busy ? 0 : idle_ + 1;
  if (idle_ == 1 || has_polled_) calm_since_ = now;
  if (program_polls_) return Pace::kStandsBy;
  if (!waits) return Pace::kSpins;
  const bool is_calm = now - calm_since_ > kCalm;
  return may_trap_ && expected.doorbells && is_calm ? Pace::kSleeps : Pace::kDozes;
}

util::Duration SleepPolicy::stand_by(const Load& load) { return in_crowd(kStandBy, load.crowd); }

/// Few polls may mean that the program only waits for its memory to change, or that it gets no
/// processor.
void SleepPolicy::judge_polls(std::uint64_t polls, const Load& load, util::Time now) {
  if (load.crowd <= kCrowd && polls - polls_ < kPollsMin) {
    trusts_from_ = now + distrust_;
    distrust_ = std::min(2 * distrust_, kDistrustMax);
  } else {
    distrust_ = kDistrustMin;
  }
}

util::Duration SleepPolicy::doze(const Load& load, const Expected& expected, util::Time now) const {
  // Without doorbells it doubles each time, so that the thread comes to rest.
  const auto longest = expected.doorbells
                           ? in_crowd(std::min(kDozeMax, kDozeMin * (1u + idle_ / 16)), load.crowd)
                           : std::min(kSleepMax, kDozeMin * (1u << std::min(idle_, 16u)));
  // Do not oversleep timers.
  return expected.next_event < now + longest ? std::max(expected.next_event - now, kDozeMin)
                                             : longest;
}

}  // namespace softhca::door
