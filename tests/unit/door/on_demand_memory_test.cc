// Memory of keys on demand: an access has the program's rights, and changes no mapping.
#include "door/card/on_demand_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "door/memory/memory_map.h"

namespace softhca::door {
namespace {

constexpr std::size_t kPageSize = 4096;

TEST(DoorOnDemandMemory, GivesWhatTheProgramItselfMayReach) {
  auto* const area = static_cast<std::byte*>(
      ::mmap(nullptr, 4 * kPageSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  for (std::size_t page = 0; page != 4; ++page) area[page * kPageSize] = std::byte{7};
  enum : std::size_t { kWritable, kReadable, kGuard, kHole };
  const auto page = [&](std::size_t number) { return area + number * kPageSize; };
  ASSERT_EQ(::mprotect(page(kReadable), kPageSize, PROT_READ), 0);
  ASSERT_EQ(::mprotect(page(kGuard), kPageSize, PROT_NONE), 0);
  ASSERT_EQ(::munmap(page(kHole), kPageSize), 0);

  OnDemandMemory memory;
  (void)pcie::AbsentPages::take();
  std::array<std::byte, 1> byte{std::byte{9}};
  const auto at = [&](std::size_t number) {
    return uverbs::Device::on_demand_address(reinterpret_cast<std::uint64_t>(page(number)));
  };
  EXPECT_TRUE(memory.dma_write(at(kWritable), byte));
  EXPECT_EQ(*page(kWritable), std::byte{9});
  EXPECT_TRUE(memory.dma_read(at(kReadable), byte));
  EXPECT_EQ(byte[0], std::byte{7});
  EXPECT_FALSE(pcie::AbsentPages::take());

  const auto protection = [&](std::size_t number) {
    return protection_of(reinterpret_cast<std::uint64_t>(page(number)));
  };
  for (const auto number : {kReadable, kGuard, kHole}) {
    const auto before = protection(number);
    EXPECT_FALSE(memory.dma_write(at(number), byte)) << number;
    EXPECT_TRUE(pcie::AbsentPages::take()) << number;
    EXPECT_EQ(protection(number), before) << number;
  }
  EXPECT_EQ(*page(kReadable), std::byte{7});
  EXPECT_FALSE(memory.dma_read(at(kGuard), byte));
  EXPECT_FALSE(memory.dma_read(at(kHole), byte));
  ::munmap(area, 3 * kPageSize);
}

}  // namespace
}  // namespace softhca::door
