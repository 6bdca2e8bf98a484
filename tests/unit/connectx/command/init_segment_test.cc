// The initialization segment (PRM 7.2, Table 8), as drivers use it.

#include "connectx/command/init_segment.h"

#include <gtest/gtest.h>

#include "connectx/base/timestamp.h"
#include "connectx/command/command_interface.h"
#include "connectx/fake_host.h"
#include "spec/connectx/hca.h"

namespace softhca::connectx {
namespace {

namespace s = spec::connectx;
using Init = s::init_segment;

constexpr std::uint64_t kHigh = Init::cmdq_phy_addr.kOffset;
constexpr std::uint64_t kLow = Init::nic_interface.kOffset;

TEST(InitSegmentTest, ShowsFirmwareAndCommandInterfaceRevision) {
  FakeHost host;
  EXPECT_EQ(host.read32(0), 28u << 16 | 12u);
  EXPECT_EQ(host.read32(4) >> 16, 5u) << "drivers refuse any other revision";
}

TEST(InitSegmentTest, ShowsQueueSizeAndStrideBeforeAndAfterTheAddressIsWritten) {
  FakeHost host;
  EXPECT_EQ(host.read32(kLow) & 0xFF, 0x56u);
  host.start_queue();
  EXPECT_EQ(host.read32(kLow) & 0xFF, 0x56u);
}

TEST(InitSegmentTest, IsNeverInitializing) {
  FakeHost host;
  EXPECT_EQ(host.read32(0x1FC), 1u << 30) << "only the software reset is offered";
  host.start_queue();
  EXPECT_EQ(host.read32(0x1FC), 1u << 30) << "only the software reset is offered";
}

TEST(InitSegmentTest, GivesTheQueueAddressBackWhenItIsRead) {
  FakeHost host;
  host.write32(kHigh, 0x12);
  host.write32(kLow, 0x3456'7000);
  EXPECT_EQ(host.read32(kHigh), 0x12u);
  EXPECT_EQ(host.read32(kLow), 0x3456'7056u);
}

TEST(InitSegmentTest, HealthCounterMovesWithTimeAloneAndIsNeverZero) {
  FakeHost host;
  std::uint32_t last = 0;
  for (int i = 0; i < 100; ++i) {
    const auto counter = host.read32(0x1010);
    EXPECT_NE(counter, 0u);
    EXPECT_NE(counter, last);
    EXPECT_EQ(counter >> 24, 0u) << "the health syndrome is 0";
    last = counter;
    host.advance(std::chrono::seconds(1));
  }
}

TEST(InitSegmentTest, HealthCounterGoesFromItsLastValueToOne) {
  constexpr auto kTick = std::chrono::milliseconds(10);
  constexpr std::int64_t kValues = 1 << 24;
  FakeHost host;
  const auto ticks = host.now.time_since_epoch() / kTick;
  host.advance(kTick * (kValues - 3 - ticks));
  std::uint32_t last = 0;
  for (int i = 0; i < 6; ++i) {
    const auto counter = host.read32(0x1010);
    EXPECT_NE(counter, 0u);
    EXPECT_NE(counter, last);
    last = counter;
    host.advance(kTick);
  }
}

TEST(InitSegmentTest, HealthBufferSaysThatAllIsWell) {
  FakeHost host;
  EXPECT_NE(host.read32(0x230), 0xFFFF'FFFFu) << "all ones mean a dead device";
  std::array<std::byte, 1> byte{std::byte{0xFF}};
  host.device.read_bar(0, 0x238, byte);
  EXPECT_EQ(byte[0], std::byte{0});
  host.device.read_bar(0, 0x23D, byte);
  EXPECT_EQ(byte[0], std::byte{0});
}

TEST(DeviceTicks, AreSixPointFourNanosecondsEach) {
  const auto at = [](std::uint64_t ns) {
    return device_ticks(util::Time{std::chrono::nanoseconds(ns)});
  };
  EXPECT_EQ(at(6), 0u);
  EXPECT_EQ(at(7), 1u);
  EXPECT_EQ(at(31), 4u);
  EXPECT_EQ(at(32), 5u);
  EXPECT_EQ(at(32'000'000'013), 5'000'000'002u);
}

TEST(InitSegmentTest, FreeRunningTimerTicksAtTheAdvertisedFrequency) {
  FakeHost host;
  const auto read = [&] { return std::uint64_t{host.read32(0x1000)} << 32 | host.read32(0x1004); };
  const auto before = read();
  host.advance(std::chrono::seconds(10));
  EXPECT_EQ(read() - before, 10u * kDeviceFrequencyKhz * 1000);
}

TEST(InitSegmentTest, ReflectsNicInterfaceWithoutTakingItForANewQueue) {
  FakeHost host;
  host.enable();
  const auto low = host.read32(kLow);
  host.write32(kLow, (low & ~0x700u) | 0x100);
  host.run();
  EXPECT_EQ(host.read32(kLow), (low & ~0x700u) | 0x100);
  EXPECT_EQ(host.device.driver().state(), HcaState::kEnabled);
}

TEST(InitSegmentTest, ANewQueueAtTheSameAddressIsANewBeginning) {
  FakeHost host;
  host.enable();
  const auto low = host.read32(kLow) & ~0xFFFu;
  host.write32(kHigh, host.read32(kHigh));
  host.write32(kLow, low);
  host.run();
  EXPECT_EQ(host.device.driver().state(), HcaState::kDisabled);
}

TEST(InitSegmentTest, AcceptsTheAddressAsOneWriteOf64Bits) {
  FakeHost host;
  host.write64(kHigh, 0x12'3456'7000);
  EXPECT_EQ(host.read32(kHigh), 0x12u);
  EXPECT_EQ(host.read32(kLow), 0x3456'7056u);
}

TEST(InitSegmentTest, TheAddressWriteAloneCausesNoDma) {
  FakeHost host;
  // Bus mastering may still be off, and the address may be unmapped.
  host.write32(kHigh, 0xFFFF'FFFF);
  host.write32(kLow, 0xFFFF'F000);
  host.run();
  host.ring_commands(1);
  host.run();
  EXPECT_EQ(host.device.commands().undelivered(), 0u);
}

TEST(InitSegmentTest, ReservedBytesReadAsZeroAndIgnoreWrites) {
  FakeHost host;
  for (const auto offset : {0x100u, 0x800u, 0x1100u, 0x2FFCu}) {
    host.write32(offset, 0xFFFF'FFFF);
    EXPECT_EQ(host.read32(offset), 0u) << std::hex << offset;
  }
}

}  // namespace
}  // namespace softhca::connectx
