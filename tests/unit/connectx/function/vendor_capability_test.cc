#include "connectx/function/vendor_capability.h"

#include <gtest/gtest.h>

#include <array>

#include "util/endian.h"

namespace softhca::connectx {
namespace {

class VendorCapabilityTest : public testing::Test {
 protected:
  static constexpr auto kAt = pcie::ConfigSpace::kVendorSpecificAt;

  VendorCapabilityTest() { config_.add_vendor_specific(VendorCapability::kLength, capability_); }

  std::uint32_t read(std::uint32_t offset) {
    std::array<std::byte, 4> bytes;
    config_.read(kAt + offset, bytes);
    return util::load_le32(bytes.data());
  }
  void write(std::uint32_t offset, std::uint32_t value) {
    std::array<std::byte, 4> bytes;
    util::store_le32(bytes.data(), value);
    config_.write(kAt + offset, bytes);
  }

  util::Notes notes_{"device"};
  InternalSpaces spaces_{notes_, [](auto, bool, auto, auto) { return CommandResult(); }};
  VendorCapability capability_{spaces_};
  std::array<pcie::Bar, 1> bars_{pcie::Bar{.size = 1u << 20}};
  pcie::ConfigSpace config_{{.vendor_id = 0x15B3,
                             .device_id = 0x1013,
                             .subsystem_vendor_id = 0,
                             .subsystem_id = 0,
                             .class_code = 0x020000,
                             .revision_id = 0},
                            bars_,
                            {.vectors = 2, .bar = 0, .table_offset = 0, .pba_offset = 0x800}};
};

TEST_F(VendorCapabilityTest, IsLastInTheListWithItsLength) {
  std::array<std::byte, 3> header;
  config_.read(kAt, header);
  EXPECT_EQ(header[0], std::byte{0x09});
  EXPECT_EQ(header[1], std::byte{0});
  EXPECT_EQ(header[2], std::byte{VendorCapability::kLength});
}

TEST_F(VendorCapabilityTest, TheSemaphoreHasOneHolderUntilHeLetsGo) {
  const auto first = read(VendorCapability::kCounter);
  write(VendorCapability::kSemaphore, first);
  EXPECT_EQ(read(VendorCapability::kSemaphore), first);

  const auto second = read(VendorCapability::kCounter);
  EXPECT_NE(second, first);
  write(VendorCapability::kSemaphore, second);
  EXPECT_EQ(read(VendorCapability::kSemaphore), first);

  write(VendorCapability::kSemaphore, 0);
  EXPECT_EQ(read(VendorCapability::kSemaphore), 0u);
}

// mlx5_core accepts a space whose status is nonzero, iPXE one with bit 29 set.
TEST_F(VendorCapabilityTest, OnlySemaphoresAndInternalCommandsAreSupported) {
  for (const std::uint32_t space : {0u, 2u, 4u, 7u, 0xFFFFu}) {
    write(VendorCapability::kControl, 0xE0000000 | space);
    EXPECT_EQ(read(VendorCapability::kControl), space);
    write(VendorCapability::kAddress, 0);
    EXPECT_EQ(read(VendorCapability::kAddress), 0xC0000000u) << "done, with a syndrome";
    EXPECT_EQ(read(VendorCapability::kData), 0u);
  }
  for (const std::uint32_t space : {3u, 0xAu}) {
    write(VendorCapability::kControl, space);
    EXPECT_EQ(read(VendorCapability::kControl), 0x20000000 | space);
  }
}

TEST_F(VendorCapabilityTest, TheFlagTurnsOverWhenAnAccessIsDone) {
  write(VendorCapability::kControl, 0xA);
  write(VendorCapability::kData, 77);
  write(VendorCapability::kAddress, 0x80000020);
  EXPECT_EQ(read(VendorCapability::kAddress), 0x20u);
  write(VendorCapability::kData, 0);
  write(VendorCapability::kAddress, 0x20);
  EXPECT_EQ(read(VendorCapability::kAddress), 0x80000020u);
  EXPECT_EQ(read(VendorCapability::kData), 77u);
  write(VendorCapability::kAddress, 0x80000100);
  EXPECT_EQ(read(VendorCapability::kAddress), 0x40000100u) << "no such semaphore";
  write(VendorCapability::kAddress, 0x80000022);
  EXPECT_EQ(read(VendorCapability::kAddress), 0x40000022u) << "not a dword's";
  config_.reset();
  write(VendorCapability::kControl, 0xA);
  write(VendorCapability::kAddress, 0x20);
  EXPECT_EQ(read(VendorCapability::kData), 0u);
}

TEST_F(VendorCapabilityTest, TheCounterIsReadOnlyAndAResetFreesTheSemaphore) {
  const auto counter = read(VendorCapability::kCounter);
  write(VendorCapability::kCounter, 0x12345678);
  EXPECT_EQ(read(VendorCapability::kCounter), counter);
  write(VendorCapability::kSemaphore, counter);
  config_.reset();
  EXPECT_EQ(read(VendorCapability::kSemaphore), 0u);
}

}  // namespace
}  // namespace softhca::connectx
