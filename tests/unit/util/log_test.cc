#include "util/log.h"

#include <gtest/gtest.h>

namespace softhca::util {
namespace {

using std::chrono::milliseconds;

TEST(RateLimiter, LetsABurstThroughAndCountsWhatItHoldsBack) {
  RateLimiter limiter(2, milliseconds(100));
  std::uint64_t held_back = 99;
  EXPECT_TRUE(limiter.allow(Time(milliseconds(0)), &held_back));
  EXPECT_TRUE(limiter.allow(Time(milliseconds(1)), &held_back));
  EXPECT_FALSE(limiter.allow(Time(milliseconds(2)), &held_back));
  EXPECT_FALSE(limiter.allow(Time(milliseconds(99)), &held_back));
  EXPECT_TRUE(limiter.allow(Time(milliseconds(100)), &held_back));
  EXPECT_EQ(held_back, 2u);
}

TEST(Log, ALineBelowTheLevelIsNotMade) {
  std::string seen;
  set_log_sink([&](LogLevel, std::string_view text) { seen += text; });
  set_log_level(LogLevel::kInfo);
  log(LogLevel::kDebug, "hidden {}", 1);
  log(LogLevel::kInfo, "shown {}", 2);
  set_log_sink(nullptr);
  EXPECT_EQ(seen, "shown 2");
}

}  // namespace
}  // namespace softhca::util
