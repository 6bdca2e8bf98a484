// How the thread of the devices spends the time between its rounds, in virtual time.
#include "door/engine/sleep_policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

namespace softhca::door {
namespace {

using namespace std::chrono_literals;

/// A thread whose turns take no time.
class DoorSleepPolicy : public testing::Test {
 protected:
  /// One round, whose turn finds work if it is `busy`.
  Pace round(bool busy) {
    policy.begin_round(polls, now);
    const bool waits = policy.may_wait(busy, 0, load, now);
    return policy.end_round(busy, waits, expected, now);
  }
  /// Idle rounds with the waits that the policy asks for, up to the first of another pace.
  Pace doze_until(util::Time end) {
    auto pace = round(false);
    for (; pace == Pace::kDozes && now < end; pace = round(false)) {
      now += policy.doze(load, expected, now);
    }
    return pace;
  }

  util::Time now{1h};
  SleepPolicy policy{true, now};
  SleepPolicy::Load load;
  SleepPolicy::Expected expected{.doorbells = true};
  std::uint64_t polls = 0;
};

TEST_F(DoorSleepPolicy, SpinsWhileThereIsWork) {
  for (int i = 0; i != 3; ++i) {
    EXPECT_EQ(round(true), Pace::kSpins);
    EXPECT_FALSE(policy.is_idle());
    now += 1s;
  }
}

TEST_F(DoorSleepPolicy, DozesAtFirstAndSleepsAfterACalmTime) {
  EXPECT_EQ(round(true), Pace::kSpins);
  const auto begin = now;
  EXPECT_EQ(doze_until(now + 1s), Pace::kSleeps);
  EXPECT_GT(now - begin, SleepPolicy::kCalm);
  EXPECT_LE(now - begin, SleepPolicy::kCalm + SleepPolicy::kDozeMax);
}

TEST_F(DoorSleepPolicy, WaitsAreShortAtFirst) {
  EXPECT_EQ(round(false), Pace::kDozes);
  EXPECT_EQ(policy.doze(load, expected, now), 20us);
  for (int i = 0; i != 1000; ++i) (void)round(false);
  EXPECT_EQ(policy.doze(load, expected, now), SleepPolicy::kDozeMax);
  policy.note_wakeup();
  EXPECT_EQ(policy.doze(load, expected, now), 20us);
}

TEST_F(DoorSleepPolicy, WithoutQueuesItComesToRestWithoutTraps) {
  expected.doorbells = false;
  EXPECT_EQ(doze_until(now + 10s), Pace::kDozes);
  EXPECT_EQ(policy.doze(load, expected, now), SleepPolicy::kSleepMax);
}

TEST_F(DoorSleepPolicy, NeverSleepsIfItMayNotTrapDoorbells) {
  policy = SleepPolicy(false, now);
  EXPECT_EQ(doze_until(now + 10s), Pace::kDozes);
}

TEST_F(DoorSleepPolicy, ATimerIsNotOverslept) {
  for (int i = 0; i != 1000; ++i) (void)round(false);
  expected.next_event = now + 300us;
  EXPECT_EQ(policy.doze(load, expected, now), 300us);
  expected.next_event = now - 1ms;
  EXPECT_EQ(policy.doze(load, expected, now), 20us) << "it is overdue";
}

TEST_F(DoorSleepPolicy, TriesAgainASecondAfterItCouldNotSleep) {
  ASSERT_EQ(doze_until(now + 1s), Pace::kSleeps);
  policy.note_no_sleep(now);
  const auto begin = now;
  EXPECT_EQ(doze_until(now + 10s), Pace::kSleeps);
  EXPECT_GT(now - begin, SleepPolicy::kSleepMax);
  EXPECT_LT(now - begin, 2 * SleepPolicy::kSleepMax);
}

TEST_F(DoorSleepPolicy, LeavesTheDevicesToAProgramThatPollsOften) {
  for (int i = 0; i != 100; ++i) {
    polls += SleepPolicy::kPollsMin;
    ASSERT_EQ(round(i % 2 == 0), Pace::kStandsBy) << i;
    polls += SleepPolicy::kPollsMin;
    now += SleepPolicy::stand_by(load);
    policy.judge_polls(polls, load, now);
  }
  EXPECT_EQ(round(false), Pace::kStandsBy);
  EXPECT_EQ(round(false), Pace::kDozes) << "the last poll was a moment ago";
}

TEST_F(DoorSleepPolicy, DistrustsAProgramThatPollsTooRarelyForEverLonger) {
  util::Duration before = 10ms;
  for (int i = 0; i != 10; ++i) {
    ++polls;
    ASSERT_EQ(round(false), Pace::kStandsBy) << i;
    now += SleepPolicy::stand_by(load);
    policy.judge_polls(polls + SleepPolicy::kPollsMin - 1, load, now);
    const auto begin = now;
    for (Pace pace = Pace::kDozes; pace != Pace::kStandsBy && now - begin < 5s; now += 1ms) {
      ++polls;
      pace = round(false);
    }
    const auto distrust = now - begin - 1ms;
    EXPECT_EQ(distrust, std::min<util::Duration>(2 * before, 1s)) << i;
    before = distrust;
    now += 1ms;
  }
}

TEST_F(DoorSleepPolicy, InACrowdFewPollsSuffice) {
  load.crowd = 4;
  for (int i = 0; i != 10; ++i) {
    ++polls;
    ASSERT_EQ(round(false), Pace::kStandsBy) << i;
    EXPECT_EQ(SleepPolicy::stand_by(load), 2ms) << "500 us for each thread of the crowd";
    now += SleepPolicy::stand_by(load);
    policy.judge_polls(polls, load, now);
  }
}

TEST_F(DoorSleepPolicy, StaysAwakeDuringALongMessage) {
  policy.begin_round(polls, now);
  EXPECT_FALSE(policy.may_wait(true, 16, load, now));
  EXPECT_FALSE(policy.may_wait(false, 0, load, now + 49us));
  EXPECT_TRUE(policy.may_wait(false, 0, load, now + 50us));
}

TEST_F(DoorSleepPolicy, LooksOnAfterWorkOnlyOnAFreeProcessor) {
  EXPECT_EQ(round(true), Pace::kSpins);
  EXPECT_EQ(round(false), Pace::kDozes);
  load.has_free = true;
  EXPECT_EQ(round(true), Pace::kSpins);
  now += 99us;
  EXPECT_EQ(round(false), Pace::kSpins);
  EXPECT_TRUE(policy.is_idle());
  now += 1us;
  EXPECT_EQ(round(false), Pace::kDozes);
}

}  // namespace
}  // namespace softhca::door
