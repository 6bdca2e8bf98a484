// Finds whether a processor is free for a thread that busy-polls, and how many threads share each.
#include "door/engine/free_processors.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace softhca::door {
namespace {

using namespace std::chrono_literals;

TEST(DoorFreeProcessors, RunningThreadsAreTheFourthWordOfLoadavg) {
  EXPECT_EQ(running_threads("0.20 0.18 0.12 1/80 11206\n"), 1U);
  EXPECT_EQ(running_threads("151.00 9.99 0.12 130/2048 7"), 130U);
  for (const auto* const other :
       {"", "0.20 0.18 0.12", "0.20 0.18 0.12 ", "0.20 0.18 0.12 1", "1/80 1 2 x/3"}) {
    EXPECT_EQ(running_threads(other), std::nullopt) << other;
  }
}

TEST(DoorFreeProcessors, AQuotaIsSoManyWholeProcessors) {
  EXPECT_EQ(processors_of_quota("200000 100000\n"), 2U);
  EXPECT_EQ(processors_of_quota("150000 100000\n"), 1U);
  EXPECT_EQ(processors_of_quota("50000 100000\n"), 0U);
  for (const auto* const other : {"max 100000\n", "", "100000", "100000 0\n", "100000 x"}) {
    EXPECT_EQ(processors_of_quota(other), std::nullopt) << other;
  }
}

TEST(DoorFreeProcessors, LooksThatTakeLongAreFew) {
  EXPECT_EQ(pause_after_look(1us), 500us);
  EXPECT_EQ(pause_after_look(100us), 20ms);
}

TEST(DoorFreeProcessors, AThreadThatLosesItsProcessorInALookLooksAgainSoon) {
  static util::Time now;
  static unsigned reads;
  now = util::Time(1h);
  reads = 0;
  FreeProcessors processors([] {
    ++reads;
    return now += 10ms;
  });
  const auto begin = now;
  processors.look(begin);
  EXPECT_EQ(reads, 2U) << "a look takes two";
  processors.look(begin + 49ms);
  EXPECT_EQ(reads, 2U);
  processors.look(begin + 51ms);
  EXPECT_EQ(reads, 4U);
}

TEST(DoorFreeProcessors, OneProcessorLeavesNoneFree) {
  cpu_set_t before;
  ASSERT_EQ(::sched_getaffinity(0, sizeof before, &before), 0);
  int one = 0;
  while (!CPU_ISSET(one, &before)) ++one;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(one, &set);
  ASSERT_EQ(::sched_setaffinity(0, sizeof set, &set), 0);
  FreeProcessors processors;
  processors.look(util::monotonic_now());
  EXPECT_FALSE(processors.any());
  ASSERT_EQ(::sched_setaffinity(0, sizeof before, &before), 0);
}

TEST(DoorFreeProcessors, MoreRunningThreadsThanProcessorsLeaveNoneFree) {
  std::atomic<bool> ends = false;
  std::atomic<long> begun = 0;
  std::vector<std::thread> busy;
  // Two more, because the kernel does not count a thread while it moves it to another processor.
  const auto threads = 4 * ::sysconf(_SC_NPROCESSORS_ONLN) + 2;
  for (long i = 0; i != threads; ++i) {
    busy.emplace_back([&] {
      ++begun;
      while (!ends.load(std::memory_order_relaxed)) {
      }
    });
  }
  // A thread that has begun waits for nothing but a processor.
  while (begun != threads) std::this_thread::yield();
  FreeProcessors processors;
  EXPECT_FALSE(processors.any()) << "look() was not called";
  EXPECT_EQ(processors.crowd(), 1U);
  const auto now = util::monotonic_now();
  processors.look(now);
  EXPECT_FALSE(processors.any());
  EXPECT_GE(processors.crowd(), 4U);
  ends = true;
  for (auto& one : busy) one.join();
  // The result is cached for a moment.
  processors.look(now + 100us);
  EXPECT_GE(processors.crowd(), 4U);
}

}  // namespace
}  // namespace softhca::door
