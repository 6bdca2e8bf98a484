// The host itself: memory, registers and interrupts of a device in the same process.
#include "driver/in_process_host.h"

#include <cstring>

#include "driver/dma_memory.h"
#include "driver/pci.h"
#include "driver/world.h"

namespace softhca::driver::test {
namespace {

class InProcessHostTest : public ::testing::Test {
 protected:
  World world_;
  InProcessHost& host_ = *world_.a().host;
  pcie::DmaSpace& dma_ = world_.a().device->dma();
};

TEST_F(InProcessHostTest, AllocatedMemoryIsZeroPageAlignedAndSeenByTheDevice) {
  enable_bus_master(host_);
  const auto buffer = must(DmaBuffer::allocate(host_, 5000));
  EXPECT_GE(buffer.bytes().size(), 5000u);
  EXPECT_EQ(buffer.iova() % Host::kPageSize, 0u);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.bytes().data()) % Host::kPageSize, 0u);
  for (const auto byte : buffer.bytes()) ASSERT_EQ(byte, std::byte{0});
  const auto other = must(DmaBuffer::allocate(host_, 5000));
  for (const auto* seen : {&buffer, &other}) {
    EXPECT_EQ(dma_.translate(seen->iova(), 5000, pcie::DmaAccess::kReadWrite),
              seen->bytes().data());
  }
}

TEST_F(InProcessHostTest, MemoryThatComesBackIsZeroAgain) {
  {
    const auto buffer = must(DmaBuffer::allocate(host_, 4096));
    std::fill(buffer.bytes().begin(), buffer.bytes().end(), std::byte{0xff});
  }
  EXPECT_EQ(host_.allocated(), 0u);
  const auto buffer = must(DmaBuffer::allocate(host_, 4096));
  for (const auto byte : buffer.bytes()) ASSERT_EQ(byte, std::byte{0});
}

TEST_F(InProcessHostTest, LargeAllocationsAreContiguousForTheDevice) {
  enable_bus_master(host_);
  constexpr std::size_t kSize = 10 << 20;
  const auto buffer = must(DmaBuffer::allocate(host_, kSize));
  EXPECT_NE(dma_.translate(buffer.iova(), kSize, pcie::DmaAccess::kReadWrite), nullptr);
}

TEST_F(InProcessHostTest, MappedMemoryIsReachableUntilItIsUnmapped) {
  enable_bus_master(host_);
  std::vector<std::byte> memory(10000);
  pcie::Iova iova = 0;
  {
    const auto mapping = must(DmaMapping::map(host_, std::span(memory).subspan(100, 5000)));
    const auto& pages = mapping.pages();
    iova = pages.iova + static_cast<std::uint64_t>(memory.data() + 100 - pages.bytes.data());
    EXPECT_EQ(dma_.translate(iova, 5000, pcie::DmaAccess::kReadWrite), memory.data() + 100);
    EXPECT_EQ(host_.mapped(), 1u);
  }
  EXPECT_EQ(dma_.translate(iova, 1, pcie::DmaAccess::kRead), nullptr);
  EXPECT_EQ(host_.mapped(), 0u);
}

TEST_F(InProcessHostTest, TheSameMemoryMayBeMappedTwice) {
  std::vector<std::byte> memory(4096);
  const auto first = must(DmaMapping::map(host_, memory));
  const auto second = must(DmaMapping::map(host_, memory));
  EXPECT_NE(first.pages().iova, second.pages().iova);
}

TEST_F(InProcessHostTest, BehindEachMappingIsNothing) {
  enable_bus_master(host_);
  // Whole large pages: the next mapping would begin right behind them.
  constexpr std::size_t kLarge = 2 << 20;
  std::vector<std::byte> memory(2 * kLarge);
  const auto skip = -reinterpret_cast<std::uintptr_t>(memory.data()) % kLarge;
  const auto page = std::span(memory).subspan(skip, kLarge);
  const auto first = must(DmaMapping::map(host_, page));
  const auto second = must(DmaMapping::map(host_, page));
  EXPECT_EQ(dma_.translate(first.pages().iova + kLarge, 1, pcie::DmaAccess::kRead), nullptr);
}

TEST_F(InProcessHostTest, NothingCannotBeMapped) { EXPECT_FALSE(DmaMapping::map(host_, {})); }

TEST_F(InProcessHostTest, InterruptsAreCountedOnceEnabled) {
  enable_bus_master(host_);
  auto& msix = world_.a().device->msix();
  msix.raise(0);
  EXPECT_EQ(host_.interrupts(0), 0u);
  must(host_.enable_interrupts(2));
  msix.raise(0);
  msix.raise(1);
  msix.raise(1);
  EXPECT_EQ(host_.interrupts(0), 1u);
  EXPECT_EQ(host_.interrupts(1), 2u);
  host_.disable_interrupts();
  msix.raise(1);
  EXPECT_EQ(host_.interrupts(1), 2u);
}

TEST_F(InProcessHostTest, InterruptsAreCountedFromZeroWhenTheyAreEnabledAgain) {
  enable_bus_master(host_);
  must(host_.enable_interrupts(2));
  world_.a().device->msix().raise(1);
  must(host_.enable_interrupts(2));
  EXPECT_EQ(host_.interrupts(1), 0u);
}

TEST_F(InProcessHostTest, MoreVectorsThanTheDeviceHasAreRefused) {
  const unsigned vectors = world_.a().device->msix().layout().vectors;
  EXPECT_FALSE(host_.enable_interrupts(1000));
  EXPECT_FALSE(host_.enable_interrupts(vectors + 1));
  must(host_.enable_interrupts(vectors));
}

TEST_F(InProcessHostTest, BusMasteringIsSwitchedInConfigurationSpace) {
  EXPECT_FALSE(world_.a().device->config().bus_master_enabled());
  enable_bus_master(host_);
  EXPECT_TRUE(world_.a().device->config().bus_master_enabled());
  EXPECT_TRUE(world_.a().device->config().memory_enabled());
  disable_bus_master(host_);
  EXPECT_FALSE(world_.a().device->config().bus_master_enabled());
}

TEST_F(InProcessHostTest, WhenTheHostGoesTheDeviceHasForgottenAllAddresses) {
  auto& node = world_.a();
  node.open();
  node.hca = nullptr;
  node.host = nullptr;
  EXPECT_TRUE(node.device->dma().mappings().empty());
  EXPECT_FALSE(node.device->config().bus_master_enabled());
}

}  // namespace
}  // namespace softhca::driver::test
