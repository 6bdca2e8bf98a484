#include "os/alarm.h"

#include <gtest/gtest.h>

#include "os/wake_socket.h"

namespace softhca::os {
namespace {

using namespace std::chrono_literals;

class AlarmTest : public ::testing::Test {
 protected:
  /// Runs the loop at least once, however late this thread gets a processor.
  void run_for(util::Duration time) {
    const auto end = util::monotonic_now() + time;
    do {
      loop_->run_once(end);
    } while (util::monotonic_now() < end);
  }
  /// Runs the loop until the alarm has rung. False after 20 seconds.
  bool rings() {
    const auto end = util::monotonic_now() + 20s;
    while (rung_ == 0 && util::monotonic_now() < end) loop_->run_once(end);
    return rung_ != 0;
  }
  std::unique_ptr<EventLoop> loop_ = EventLoop::create().value();
  int rung_ = 0;
  std::unique_ptr<Alarm> alarm_ = Alarm::create(*loop_, [this] { ++rung_; }).value();
};

TEST_F(AlarmTest, RingsOnceAtItsTimeAndNotBefore) {
  const auto start = util::monotonic_now();
  alarm_->set(start + 20ms);
  ASSERT_TRUE(rings());
  EXPECT_GE(util::monotonic_now() - start, 20ms);
  run_for(40ms);
  EXPECT_EQ(rung_, 1);
}

TEST_F(AlarmTest, ATimeThatHasPassedIsNow) {
  alarm_->set(util::Time{});
  EXPECT_TRUE(rings());
  run_for(10ms);
  EXPECT_EQ(rung_, 1);
}

TEST_F(AlarmTest, ATimeThatIsTakenBackIsNone) {
  alarm_->set(util::monotonic_now() + 5ms);
  alarm_->set(util::kNever);
  run_for(20ms);
  EXPECT_EQ(rung_, 0);
}

TEST_F(AlarmTest, AWakeReachesTheOtherSideUntilItIsCleared) {
  auto [ours, theirs] = WakeSocket::make_pair().value();
  int calls = 0;
  ASSERT_TRUE(loop_->add(theirs.fd(), EPOLLIN, [&, &end = theirs](std::uint32_t) {
    ++calls;
    end.clear();
  }));
  ours.wake();
  ours.wake();
  run_for(10ms);
  EXPECT_EQ(calls, 1);
  loop_->remove(theirs.fd());
}

TEST_F(AlarmTest, AWakeThatIsNotClearedDelaysNoOther) {
  auto [ours, theirs] = WakeSocket::make_pair().value();
  for (int i = 0; i < 100'000; ++i) ours.wake();
  SUCCEED();
}

}  // namespace
}  // namespace softhca::os
