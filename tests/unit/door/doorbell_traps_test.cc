// Doorbell pages that wake a sleeping engine.
#include "door/memory/doorbell_traps.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdint>
#include <thread>

#include "door/memory/memory_map.h"
#include "door/memory/pages.h"

namespace softhca::door {
namespace {

class DoorbellTraps : public testing::Test {
 protected:
  DoorbellTraps() : file_(::memfd_create("pages", MFD_CLOEXEC)), wake_(::eventfd(0, EFD_NONBLOCK)) {
    EXPECT_EQ(::ftruncate(file_, 4 * kPage), 0);
    EXPECT_EQ(::fstat(file_, &status_), 0);
    area_ = static_cast<std::byte*>(
        ::mmap(nullptr, 4 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    struct sigaction action{};
    action.sa_sigaction = [](int, siginfo_t* info, void*) {
      if (!trap_doorbell(info->si_addr)) ::_exit(77);
    };
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    ::sigaction(SIGSEGV, &action, &before_);
  }
  ~DoorbellTraps() override {
    disarm();
    forget_doorbell_traps();
    ::sigaction(SIGSEGV, &before_, nullptr);
    ::munmap(area_, 4 * kPage);
    ::close(wake_);
    ::close(file_);
  }

  /// Maps page `number` of the file.
  std::byte* map(std::size_t number) {
    auto* const at = area_ + number * kPage;
    EXPECT_NE(::mmap(at, kPage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file_,
                     static_cast<off_t>(number * kPage)),
              MAP_FAILED);
    return at;
  }
  bool arm() {
    return arm([] {});
  }
  /// Runs `meanwhile` while the traps search for the pages.
  template <class Meanwhile>
  bool arm(Meanwhile&& meanwhile) {
    return arm_doorbell_traps(
        [&](dev_t device, ino_t inode) {
          meanwhile();
          return device == status_.st_dev && inode == status_.st_ino;
        },
        wake_);
  }
  void disarm() {
    disarm_doorbell_traps([&](dev_t device, ino_t inode) {
      return device == status_.st_dev && inode == status_.st_ino;
    });
  }
  /// Maps something else in place of page `number` of the file.
  std::byte* replace(std::size_t number) {
    auto* const at = area_ + number * kPage;
    EXPECT_NE(::mmap(at, kPage, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
              MAP_FAILED);
    return at;
  }
  static bool may_write(std::byte* at) {
    std::byte byte{};
    const iovec from{.iov_base = &byte, .iov_len = 1}, to{.iov_base = at, .iov_len = 1};
    return ::process_vm_writev(::getpid(), &from, 1, &to, 1, 0) == 1;
  }
  bool woken() const {
    std::uint64_t count = 0;
    return ::read(wake_, &count, sizeof count) == static_cast<ssize_t>(sizeof count);
  }

  int file_, wake_;
  struct stat status_{};
  struct sigaction before_{};
  std::byte* area_;
};

void store(std::byte* at) { *static_cast<volatile std::byte*>(at) = std::byte{1}; }

TEST_F(DoorbellTraps, AStoreGoesThroughAndWakes) {
  auto* const page = map(2);
  store(page);
  EXPECT_FALSE(woken());
  ASSERT_TRUE(arm());
  EXPECT_FALSE(woken());
  store(page + 8);
  EXPECT_TRUE(woken());
  EXPECT_EQ(page[8], std::byte{1});
  store(page);
  EXPECT_FALSE(woken()) << "once, until it is armed anew";
}

TEST_F(DoorbellTraps, DisarmedPagesAreAsBefore) {
  auto* const page = map(0);
  ASSERT_TRUE(arm());
  disarm();
  store(page);
  EXPECT_FALSE(woken());
}

// A store may hit a trap, and its thread may not be scheduled again until the next traps are made.
TEST_F(DoorbellTraps, ALateStoreFindsItsTrapWhileTheNextTrapsAreMade) {
  auto* const page = map(2);
  ASSERT_TRUE(arm());
  disarm();
  map(0);
  unsigned found = 0, asked = 0;
  ASSERT_TRUE(arm([&] {
    ++asked;
    found += trap_doorbell(page);
  }));
  EXPECT_GE(asked, 2u);
  EXPECT_EQ(found, asked);
}

// A device is closed while its engine sleeps, and the program maps other memory in place of its
// doorbell pages.
TEST_F(DoorbellTraps, MemoryThatReplacesAPageStaysAsItIs) {
  map(0);
  map(2);
  ASSERT_TRUE(arm());
  auto* const other = replace(2);
  disarm();
  EXPECT_FALSE(may_write(other));
  EXPECT_FALSE(trap_doorbell(other));
  EXPECT_TRUE(may_write(area_));
}

// The same while the traps are still armed.
TEST_F(DoorbellTraps, MemoryThatReplacesATrapIsNoDoorbell) {
  bool found = false;
  if (maps_file_by_query(0, kPage, [](dev_t, ino_t) { return false; }, found) != 0) {
    GTEST_SKIP() << "the kernel has no PROCMAP_QUERY";
  }
  auto* const page = map(1);
  map(2);
  ASSERT_TRUE(arm());
  auto* const other = replace(2);
  EXPECT_FALSE(trap_doorbell(other));
  EXPECT_FALSE(may_write(other));
  EXPECT_FALSE(woken());
  store(page);
  EXPECT_TRUE(woken());
}

TEST_F(DoorbellTraps, MemoryBesideAPageStaysAsItIs) {
  map(1);
  auto* const page = map(2);
  ASSERT_TRUE(arm());
  auto* const other = replace(1);
  store(page);
  EXPECT_TRUE(woken());
  EXPECT_FALSE(may_write(other));
}

TEST_F(DoorbellTraps, AForgottenPageIsTheProgramsOwn) {
  auto* const page = map(2);
  ASSERT_TRUE(arm());
  disarm();
  EXPECT_TRUE(trap_doorbell(page)) << "it comes late";
  forget_doorbell_traps();
  EXPECT_FALSE(trap_doorbell(page));
}

TEST_F(DoorbellTraps, StoresOfOneThreadAndArmingByAnotherDoNotDisturbEachOther) {
  auto* const page = map(2);
  ASSERT_TRUE(arm());
  std::atomic<bool> begun = false, done = false;
  std::thread program([&] {
    begun = true;  // until now the thread blocks all signals
    while (!done) store(page);
  });
  while (!begun) std::this_thread::yield();
  for (int i = 0; i != 200; ++i) {
    disarm();
    if (i % 2 == 0) {
      map(0);
    } else {
      ::mmap(area_, kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    }
    EXPECT_TRUE(arm());
  }
  done = true;
  program.join();
}

}  // namespace
}  // namespace softhca::door
