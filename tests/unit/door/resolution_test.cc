// The address resolution for which a call waits.
#include "door/engine/resolution.h"

#include <gtest/gtest.h>

namespace softhca::door {
namespace {

using Step = Resolution::Step;
constexpr util::Time kStart{std::chrono::seconds(5)};

TEST(DoorResolution, AsksThreeTimesWithinASecond) {
  Resolution resolution;
  auto now = kStart;
  for (int i = 0; i != 3; ++i) {
    EXPECT_EQ(resolution.step(now), Step::kAsk) << i;
    EXPECT_EQ(resolution.step(now), Step::kWait) << i;
    now += Resolution::kPatience;
  }
  EXPECT_EQ(resolution.step(now), Step::kGiveUp);
  EXPECT_LT(now - kStart, std::chrono::seconds(1));
}

TEST(DoorResolution, ACallThatIsServedAgainInVainWaitsNoMore) {
  Resolution resolution;
  driver::Gid to{};
  resolution.want(to);
  EXPECT_TRUE(resolution.wanted());
  resolution.begin_again();
  EXPECT_FALSE(resolution.wanted());
}

}  // namespace
}  // namespace softhca::door
