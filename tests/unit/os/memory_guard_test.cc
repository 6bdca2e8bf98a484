// Shared memory that another process truncates while it is mapped.
#include "os/memory_guard.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <atomic>
#include <thread>

#include "os/open_descriptors.h"

namespace softhca {
namespace {

using os::MemoryGuard;
using os::MemoryOwner;
using os::UniqueFd;
using test::kPage;

/// A mapped file in memory.
struct Shared {
  explicit Shared(std::size_t size_of_it) : size(size_of_it), fd(test::memory_file(size)) {
    start = static_cast<std::byte*>(
        ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0));
    EXPECT_NE(start, MAP_FAILED);
  }
  ~Shared() { ::munmap(start, size); }
  void shorten(std::size_t to) { ASSERT_EQ(::ftruncate(fd.get(), static_cast<off_t>(to)), 0); }

  std::size_t size;
  UniqueFd fd;
  std::byte* start;
};

std::byte read(const std::byte* at) { return *const_cast<const volatile std::byte*>(at); }
void write(std::byte* at, std::byte value) { *const_cast<volatile std::byte*>(at) = value; }

TEST(MemoryGuard, MissingMemoryReadsAsZerosAndItsOwnerIsNotified) {
  Shared memory(8 * kPage), other(kPage);
  MemoryOwner owner, innocent;
  auto& guard = MemoryGuard::instance();
  ASSERT_TRUE(guard.add(memory.start, memory.size, owner));
  ASSERT_TRUE(guard.add(other.start, other.size, innocent));
  std::fill_n(memory.start, memory.size, std::byte{0x5a});
  memory.shorten(2 * kPage);
  EXPECT_FALSE(owner.lost);
  EXPECT_EQ(read(memory.start + 5 * kPage), std::byte{0});
  EXPECT_TRUE(owner.lost);
  EXPECT_EQ(read(memory.start + kPage), std::byte{0x5a}) << "what is left is left";
  write(memory.start + 7 * kPage, std::byte{1});
  EXPECT_EQ(read(memory.start + 7 * kPage), std::byte{1}) << "only this process sees it";
  EXPECT_EQ(read(memory.start + 2 * kPage), std::byte{0}) << "below the first that was missed";
  EXPECT_FALSE(innocent.lost);
  guard.remove(memory.start);
  guard.remove(other.start);
}

TEST(MemoryGuard, AnyThreadMayMeetIt) {
  Shared memory(4 * kPage);
  auto loop = os::EventLoop::create().value();
  unsigned told = 0;
  os::EventLoop::Notice notice(*loop, [&] { ++told; });
  loop->run_once(util::Time{});
  MemoryOwner owner;
  owner.notice = &notice;
  ASSERT_TRUE(MemoryGuard::instance().add(memory.start, memory.size, owner));
  memory.shorten(0);
  std::thread worker([&] { write(memory.start, std::byte{1}); });
  while (told == 0) loop->run_once(util::kNever);
  worker.join();
  EXPECT_TRUE(owner.lost);
  MemoryGuard::instance().remove(memory.start);
}

// The start of one range with the size of another would be an unguarded range.
TEST(MemoryGuard, APlaceThatIsReusedIsNeverReadHalf) {
  auto& guard = MemoryGuard::instance();
  Shared small(kPage);
  MemoryOwner owner;
  // These addresses are never accessed.
  auto* const large = small.start + (std::size_t{1} << 30);
  std::atomic<bool> ended = false;
  std::thread other([&] {
    for (int i = 0; i < 300'000; ++i) {
      ASSERT_TRUE(guard.add(small.start, kPage, owner));
      guard.remove(small.start);
      ASSERT_TRUE(guard.add(large, 64 * kPage, owner));
      guard.remove(large);
    }
    ended = true;
  });
  unsigned wrong = 0;
  while (!ended) wrong += MemoryGuard::find(small.start + 8 * kPage) ? 1 : 0;
  other.join();
  EXPECT_EQ(wrong, 0u);
  ASSERT_TRUE(guard.add(small.start, kPage, owner));
  EXPECT_EQ(MemoryGuard::find(small.start + 8)->size, kPage);
  guard.remove(small.start);
  EXPECT_FALSE(MemoryGuard::find(small.start));
}

/// True if the signal ended the process, or a sanitizer whose handler was installed first: it
/// reports the fault and exits in its own way.
bool died_of_the_fault(int status) {
  return WIFSIGNALED(status) ? WTERMSIG(status) == SIGBUS : WEXITSTATUS(status) != 0;
}

TEST(MemoryGuardDeathTest, AFaultOfOurOwnStillEndsTheProcess) {
  Shared memory(kPage);
  MemoryGuard::instance();
  memory.shorten(0);
  EXPECT_EXIT(read(memory.start), died_of_the_fault, "");
}

TEST(MemoryGuard, ARangeThatWasRemovedIsNotGuardedAndItsPlaceIsUsedAgain) {
  MemoryOwner owner;
  auto& guard = MemoryGuard::instance();
  Shared memory(kPage);
  for (std::size_t i = 0; i < 2 * MemoryGuard::kMaxRanges; ++i) {
    ASSERT_TRUE(guard.add(memory.start, memory.size, owner));
    guard.remove(memory.start);
  }
  memory.shorten(0);
  EXPECT_EXIT(read(memory.start), died_of_the_fault, "");
}

}  // namespace
}  // namespace softhca
