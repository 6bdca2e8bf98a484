// Interrupts delivered by eventfd, as a host in another process signals them.
#include "driver/eventfd_interrupts.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>

namespace softhca::driver {
namespace {

TEST(EventfdInterrupts, CountsEverySignalOfEachVector) {
  auto interrupts = EventfdInterrupts::create(2).value();
  const auto fds = interrupts.fds();
  ASSERT_EQ(fds.size(), 2u);
  for (int i = 0; i < 3; ++i) ASSERT_EQ(::eventfd_write(fds[1], 1), 0);
  EXPECT_EQ(interrupts.signaled(0), 0u);
  EXPECT_EQ(interrupts.signaled(1), 3u);
  EXPECT_EQ(interrupts.signaled(1), 3u) << "none comes twice";
  ASSERT_EQ(::eventfd_write(fds[1], 2), 0);
  EXPECT_EQ(interrupts.signaled(1), 5u);
  EXPECT_EQ(interrupts.signaled(2), 0u) << "a vector that is not there";
}

TEST(EventfdInterrupts, AWaitEndsWithTheSignalOrAtItsTime) {
  auto interrupts = EventfdInterrupts::create(1).value();
  const auto start = util::monotonic_now();
  interrupts.wait(0, -1, start + std::chrono::milliseconds(10));
  EXPECT_GE(util::monotonic_now(), start + std::chrono::milliseconds(10));
  ASSERT_EQ(::eventfd_write(interrupts.fds()[0], 1), 0);
  const auto limit = util::monotonic_now() + std::chrono::seconds(20);
  interrupts.wait(0, -1, limit);
  EXPECT_LT(util::monotonic_now(), limit);
}

}  // namespace
}  // namespace softhca::driver
