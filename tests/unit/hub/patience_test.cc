#include "hub/patience.h"

#include <gtest/gtest.h>

namespace softhca::hub {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kEnough = 100'000;

/// A full ring, and a receiver that drains it.
class PatienceTest : public testing::Test {
 protected:
  std::size_t room(std::size_t free = 0) {
    return patience_.room(free, taken_, kEnough, [this] { return now_; });
  }

  Patience patience_{Patience::kLeast};
  std::uint64_t taken_ = 0;
  util::Time now_{1h};
};

TEST_F(PatienceTest, AReceiverThatTakesNothingIsWaitedForSoLong) {
  EXPECT_EQ(room(), 0u);
  now_ += Patience::kLongest - 1ms;
  EXPECT_EQ(room(), 0u);
  now_ += 1ms;
  EXPECT_EQ(room(), SIZE_MAX);
}

TEST_F(PatienceTest, AReceiverThatTakesALittleNowAndThenIsNoExcuse) {
  EXPECT_EQ(room(), 0u);
  std::size_t last = 0;
  for (int i = 0; i < 6; ++i) {
    now_ += 50ms;
    taken_ += 8;
    last = room();
  }
  EXPECT_EQ(last, SIZE_MAX);
}

TEST_F(PatienceTest, NorIsOneThatMakesRoomForAMoment) {
  int waits = 0;
  for (int i = 0; i < 100; ++i) {
    waits += room(i % 2 == 0 ? 0 : kEnough) == 0 ? 1 : 0;
    now_ += 30ms;
    taken_ += 8;
  }
  EXPECT_EQ(waits, 4) << "of 30 ms each";
}

TEST_F(PatienceTest, AReceiverThatGoesOnIsWaitedForAgain) {
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(room(), 0u) << i;
    now_ += Patience::kLongest - 1ms;
    ASSERT_EQ(room(), 0u) << i;
    taken_ += Patience::kLeast;
    now_ += 1ms;
  }
}

TEST_F(PatienceTest, TimeWithoutAWaitingSenderDoesNotCount) {
  EXPECT_EQ(room(), 0u);
  EXPECT_EQ(room(kEnough), kEnough);
  now_ += 1h;
  EXPECT_EQ(room(), 0u);
}

}  // namespace
}  // namespace softhca::hub
