// Slow work is done in another thread.
#include "os/janitor.h"

#include <gtest/gtest.h>
#include <linux/memfd.h>
#include <sys/mman.h>

#include <future>

#include "os/open_descriptors.h"
#include "os/slow_close.h"

namespace softhca {
namespace {

using os::Janitor;
using namespace std::chrono_literals;

/// True if the page is mapped.
bool mapped(std::byte* page) {
  unsigned char in_core;
  return ::mincore(page, 4096, &in_core) == 0;
}

std::byte* map(std::size_t size) {
  auto* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  EXPECT_NE(memory, MAP_FAILED);
  return static_cast<std::byte*>(memory);
}

Janitor::Map mapping(std::byte* memory, std::size_t size) { return {memory, size}; }

std::shared_ptr<os::MemoryOwner> guard(std::byte* memory, std::size_t size) {
  auto owner = std::make_shared<os::MemoryOwner>();
  EXPECT_TRUE(os::MemoryGuard::instance().add(memory, size, *owner));
  return owner;
}

TEST(Janitor, AClosedSocketMayLinger) {
  Janitor janitor;
  test::SlowClose slow(1000);
  const auto before = test::open_fds();
  EXPECT_TRUE(slow.lets_return([&] { janitor.close(std::move(slow.fd)); }));
  EXPECT_EQ(janitor.pending_descriptors(), 1u);
  EXPECT_FALSE(janitor.wait(util::monotonic_now() + 1ms));
  slow.release();
  EXPECT_TRUE(janitor.wait(util::monotonic_now() + 20s));
  EXPECT_EQ(test::open_fds_after(before - 2), before - 2);
}

TEST(Janitor, UnmapsAllOfALargeRange) {
  Janitor janitor;
  constexpr std::size_t kSize = (std::size_t{9} << 20) + 4096;
  auto* memory = map(kSize);
  const auto owner = guard(memory, kSize);
  janitor.unmap({mapping(memory, kSize)}, owner);
  EXPECT_TRUE(janitor.wait(util::monotonic_now() + 20s));
  for (std::size_t at = 0; at < kSize; at += 4096) ASSERT_FALSE(mapped(memory + at)) << at;
}

TEST(Janitor, AHugePageIsUnmappedWhole) {
  constexpr std::size_t kHuge = std::size_t{1} << 30;
  const os::UniqueFd file(::memfd_create("huge", MFD_CLOEXEC | MFD_HUGETLB | MFD_HUGE_1GB));
  if (!file) GTEST_SKIP() << "the kernel has no huge pages of 1 GiB";
  ASSERT_EQ(::ftruncate(file.get(), kHuge), 0);
  auto* start = ::mmap(nullptr, kHuge, PROT_READ, MAP_SHARED | MAP_NORESERVE, file.get(), 0);
  ASSERT_NE(start, MAP_FAILED);
  auto* used = static_cast<std::byte*>(start) + 4096;
  auto owner = std::make_shared<os::MemoryOwner>();
  ASSERT_TRUE(os::MemoryGuard::instance().add(
      {.start = static_cast<std::byte*>(start), .size = kHuge, .page = kHuge}, used, *owner));
  Janitor janitor;
  janitor.unmap({mapping(used, 4096)}, owner);
  EXPECT_TRUE(janitor.wait(util::monotonic_now() + 20s));
  EXPECT_EQ(test::mappings_of("memfd:huge"), 0u);
}

TEST(Janitor, ASmallRangeIsGoneAtOnce) {
  Janitor janitor;
  auto* memory = map(8192);
  janitor.unmap({mapping(memory, 8192)}, guard(memory, 8192));
  EXPECT_EQ(janitor.pending_maps(), 0u);
  EXPECT_FALSE(mapped(memory));
}

TEST(Janitor, LeavesAloneWhatIsNotGuarded) {
  Janitor janitor;
  auto* memory = map(8192);
  janitor.unmap({mapping(memory, 4096), mapping(memory + 4096, 4096)}, nullptr);
  EXPECT_TRUE(janitor.wait(util::monotonic_now() + 20s));
  EXPECT_TRUE(mapped(memory));
  ::munmap(memory, 8192);
}

// A system call for each would stall the loop.
TEST(Janitor, ManySmallRangesGoBehindTheLoopsBack) {
  auto loop = os::EventLoop::create().value();
  bool told = false;
  os::EventLoop::Notice gone(*loop, [&told] { told = true; });
  Janitor janitor(&gone);
  test::SlowClose slow(30);
  // Keeps the janitor's thread of maps and eventfds busy.
  std::vector<os::UniqueFd> busy;
  busy.push_back(std::move(slow.fd));
  janitor.close_eventfds(std::move(busy));
  constexpr std::size_t kMaps = 1000;
  auto* memory = map(2 * kMaps * 4096);
  Janitor::Maps maps;
  auto owner = std::make_shared<os::MemoryOwner>();
  for (std::size_t i = 0; i < kMaps; ++i) {
    auto* page = memory + 2 * i * 4096;
    ASSERT_TRUE(os::MemoryGuard::instance().add(page, 4096, *owner));
    maps.push_back(mapping(page, 4096));
  }
  janitor.unmap(std::move(maps), owner);
  EXPECT_EQ(janitor.pending_maps(), kMaps);
  EXPECT_TRUE(mapped(memory)) << "it has not begun";
  janitor.notify_when_gone();
  loop->run_once(util::Time::min());
  EXPECT_FALSE(told);
  slow.release();
  EXPECT_TRUE(janitor.wait(util::monotonic_now() + 20s));
  EXPECT_EQ(janitor.pending_maps(), 0u);
  EXPECT_EQ(janitor.pending_descriptors(), 0u);
  for (std::size_t i = 0; i < kMaps; ++i) ASSERT_FALSE(mapped(memory + 2 * i * 4096)) << i;
  EXPECT_FALSE(os::MemoryGuard::instance().remove(memory)) << "the guard forgot it";
  loop->run_once(util::Time::min());
  EXPECT_TRUE(told);
  told = false;
  janitor.notify_when_gone();
  loop->run_once(util::Time::min());
  EXPECT_TRUE(told) << "there is nothing to wait for";
  ::munmap(memory, 2 * kMaps * 4096);
}

TEST(Janitor, ADescriptorThatDoesNotCloseDelaysNoMaps) {
  Janitor janitor;
  test::SlowClose slow(30);
  janitor.close(std::move(slow.fd));
  constexpr std::size_t kSize = std::size_t{1} << 20;
  auto* memory = map(kSize);
  // The owner goes after its maps.
  std::promise<void> gone;
  const auto guarded = guard(memory, kSize);
  std::shared_ptr<os::MemoryOwner> owner(guarded.get(), [&](auto*) { gone.set_value(); });
  janitor.unmap({mapping(memory, kSize)}, std::move(owner));
  EXPECT_EQ(gone.get_future().wait_for(30s), std::future_status::ready);
  EXPECT_FALSE(mapped(memory));
  EXPECT_EQ(janitor.pending_descriptors(), 1u);
  slow.release();
}

TEST(Janitor, ItsEndDoesNotWaitForever) {
  test::SlowClose slow(1000);
  EXPECT_TRUE(slow.lets_return([&slow] {
    Janitor janitor;
    janitor.close(std::move(slow.fd));
  }));
  slow.release();
}

}  // namespace
}  // namespace softhca
