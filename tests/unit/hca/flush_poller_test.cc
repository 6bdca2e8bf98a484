#include "hca/flush_poller.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

namespace softhca::hca {
namespace {

using std::chrono::microseconds;

struct Queue {
  std::optional<std::uint32_t> watched;
  unsigned looks = 0;
  bool flushes = true;
};

class FlushPollerTest : public testing::Test {
 protected:
  util::Time poll(util::Time now) {
    return poller_.poll(now, work_, [](Queue& queue) {
      ++queue.looks;
      return queue.flushes;
    });
  }

  FlushPoller<Queue> poller_;
  util::WorkBudget work_{1'000'000};
};

TEST_F(FlushPollerTest, PollsSlowDownUntilAnotherQueueIsWatched) {
  Queue a;
  Queue b;
  const util::Time now{};
  poller_.watch(a);
  for (const auto wait : {50, 100, 200, 400, 800, 1000, 1000}) {
    EXPECT_EQ(poll(now), now + microseconds(wait));
  }
  poller_.watch(b);
  EXPECT_EQ(poll(now), now + microseconds(50));
  EXPECT_EQ(a.looks, 8u);
  EXPECT_EQ(b.looks, 1u);
}

TEST_F(FlushPollerTest, AQueueThatFlushesNoMoreIsForgotten) {
  std::array<Queue, 3> queues;
  for (auto& queue : queues) poller_.watch(queue);
  queues[0].flushes = false;
  EXPECT_NE(poll({}), util::kNever);
  EXPECT_FALSE(queues[0].watched);
  for (const auto& queue : queues) EXPECT_EQ(queue.looks, 1u);
  poller_.unwatch(queues[0]);  // no effect
  poller_.unwatch(queues[1]);
  EXPECT_FALSE(poller_.empty());
  poller_.unwatch(queues[2]);
  EXPECT_TRUE(poller_.empty());
  EXPECT_EQ(poll({}), util::kNever);
}

TEST_F(FlushPollerTest, PollsOfManyQueuesContinueWhereTheLastStopped) {
  std::vector<Queue> queues(512);
  for (auto& queue : queues) poller_.watch(queue);
  poll({});
  poll({});
  for (const auto& queue : queues) EXPECT_EQ(queue.looks, 1u);
}

TEST_F(FlushPollerTest, APollStopsWhenItsWorkIsSpent) {
  std::array<Queue, 4> queues;
  for (auto& queue : queues) poller_.watch(queue);
  util::WorkBudget work(2);
  poller_.poll({}, work, [&](Queue& queue) {
    work.charge(1);
    ++queue.looks;
    return true;
  });
  EXPECT_EQ(queues[1].looks, 1u);
  EXPECT_EQ(queues[2].looks, 0u);
}

}  // namespace
}  // namespace softhca::hca
