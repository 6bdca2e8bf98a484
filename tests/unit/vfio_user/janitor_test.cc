// What takes its time is done in another thread.
#include "vfio_user/janitor.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include "vfio_user/served_function.h"
#include "vfio_user/slow_close.h"

namespace softhca {
namespace {

using vfio_user::Janitor;
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

TEST(Janitor, AClosedSocketMayLinger) {
  Janitor janitor;
  testing::SlowClose slow(3);
  const auto before = testing::open_fds();
  const auto start = util::monotonic_now();
  janitor.close(std::move(slow.fd));
  EXPECT_LT(util::monotonic_now() - start, 500ms);
  EXPECT_EQ(janitor.pending(), 1u);
  EXPECT_FALSE(janitor.wait(util::monotonic_now() + 1ms));
  slow.release();
  EXPECT_TRUE(janitor.wait(util::monotonic_now() + 5s));
  EXPECT_EQ(testing::open_fds_after(before - 2), before - 2);
}

TEST(Janitor, UnmapsAllOfALargeRange) {
  Janitor janitor;
  constexpr std::size_t kSize = (std::size_t{9} << 20) + 4096;
  auto* memory = map(kSize);
  janitor.unmap(memory, kSize);
  EXPECT_TRUE(janitor.wait(util::monotonic_now() + 5s));
  for (std::size_t at = 0; at < kSize; at += 4096) ASSERT_FALSE(mapped(memory + at)) << at;
}

TEST(Janitor, ASmallRangeIsGoneAtOnce) {
  Janitor janitor;
  auto* memory = map(8192);
  janitor.unmap(memory, 8192);
  EXPECT_EQ(janitor.pending(), 0u);
  EXPECT_FALSE(mapped(memory));
}

TEST(Janitor, ItsEndDoesNotWaitForever) {
  testing::SlowClose slow(30);
  const auto start = util::monotonic_now();
  {
    Janitor janitor;
    janitor.close(std::move(slow.fd));
  }
  EXPECT_LT(util::monotonic_now() - start, 10s);
  slow.release();
}

}  // namespace
}  // namespace softhca
