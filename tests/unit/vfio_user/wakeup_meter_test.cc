// Wakeups by a virtual clock.
#include "vfio_user/wakeup_meter.h"

#include <gtest/gtest.h>

#include "vfio_user/client_interrupts.h"
#include "vfio_user/served_function.h"

namespace softhca {
namespace {

using namespace std::chrono_literals;
using namespace vfio_user::protocol;
using os::UniqueFd;
using test::event;
using test::signals;
using test::TestFunction;
using vfio_user::WakeupMeter;

class WakeupMeterTest : public ::testing::Test {
 protected:
  WakeupMeterTest() { time_ = processor_ = {}; }
  /// One wakeup of so much time by the clock, and on the processor.
  void wake(util::Duration time, util::Duration processor, unsigned bytes = 0) {
    meter_.measure([&] {
      time_ += time;
      processor_ += processor;
      return bytes;
    });
  }

  static inline util::Time time_, processor_;
  static constexpr WakeupMeter::Clocks kClocks{.now = [] { return time_; },
                                               .thread_time = [] { return processor_; }};
  WakeupMeter meter_{kClocks, nullptr};
};

TEST_F(WakeupMeterTest, FourSlowOnesAreTooMany) {
  for (int i = 0; i < 3; ++i) wake(8ms, 8ms);
  EXPECT_FALSE(meter_.exceeded());
  wake(8ms, 8ms);
  EXPECT_TRUE(meter_.exceeded());
}

TEST_F(WakeupMeterTest, SlowOnesBetweenFastOnesAreTooMany) {
  for (int i = 0; i < 10; ++i) {
    wake(8ms, 8ms);
    wake(1us, 1us);
  }
  EXPECT_TRUE(meter_.exceeded());
}

TEST_F(WakeupMeterTest, ACrowdedMachineIsNoClientsFault) {
  for (int i = 0; i < 1000; ++i) wake(8ms, 1us);
  EXPECT_FALSE(meter_.exceeded());
}

TEST_F(WakeupMeterTest, ThreadsThatLoseTheirProcessorsTogetherAreNoClientsFault) {
  const auto within = [this](auto wake) { meter_.measure([&] { return wake(), 0u; }); };
  within([&] { within([&] { within([&] { wake(20ms, 1us); }); }); });
  EXPECT_FALSE(meter_.exceeded());
}

TEST_F(WakeupMeterTest, AVirtualMachineIsNoClientsFault) {
  wake(1ms, 1ms);
  for (int i = 0; i < 100'000; ++i) wake(200us, 200us);
  EXPECT_FALSE(meter_.exceeded());
}

TEST_F(WakeupMeterTest, FastOnesMakeUpForASlowOne) {
  for (int i = 0; i < 100; ++i) {
    wake(1ms, 1ms);
    for (int j = 0; j < 60; ++j) wake(1us, 1us);
  }
  EXPECT_FALSE(meter_.exceeded());
}

TEST_F(WakeupMeterTest, LongMessagesTakeTheirTime) {
  for (int i = 0; i < 100; ++i) wake(1ms, 1ms, 1'000'000);
  EXPECT_FALSE(meter_.exceeded());
}

TEST_F(WakeupMeterTest, ARequestOfManySlowSignalsEndsAfterAFew) {
  // By this clock, each signal takes 8 milliseconds.
  constexpr auto kClock = [] { return time_ += 8ms; };
  WakeupMeter meter({.now = kClock, .thread_time = kClock}, nullptr);
  TestFunction function;
  const std::uint16_t bus_master = 0x0006;
  function.write_config(4, test::bytes_of(bus_master));
  vfio_user::ClientInterrupts interrupts(function.interrupts(), nullptr, 100, meter);
  IrqSet request{.argsz = sizeof(IrqSet),
                 .flags = kIrqSetDataEventfd | kIrqSetActionTrigger,
                 .index = kMsixIrqIndex,
                 .start = 0,
                 .count = TestFunction::kVectors};
  const auto eventfd = event();
  std::vector<UniqueFd> fds;
  for (unsigned i = 0; i < TestFunction::kVectors; ++i) fds.emplace_back(::dup(eventfd.get()));
  ASSERT_TRUE(interrupts.set(request, {}, fds));
  request.flags = kIrqSetDataNone | kIrqSetActionTrigger;
  EXPECT_EQ(interrupts.set(request, {}, {}).error, EBUSY);
  EXPECT_EQ(signals(eventfd), 4u);
  function.interrupts().raise(0);
  EXPECT_EQ(signals(eventfd), 0u) << "it is woken no more";
}

}  // namespace
}  // namespace softhca
