// The program's signal handlers, chained behind the door's, and faults of the device.
#include "door/memory/fault_guard.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <csetjmp>
#include <cstddef>
#include <thread>

#include "door/memory/memory_map.h"
#include "door/memory/pages.h"
#include "door/memory/stand_ins.h"
#include "os/memory_faults.h"

namespace softhca::door {
namespace {

sigjmp_buf back;
int calls = 0;
bool usr1_was_blocked = false;

void count_and_jump(int) {
  ++calls;
  sigset_t now;
  ::pthread_sigmask(SIG_BLOCK, nullptr, &now);
  usr1_was_blocked = ::sigismember(&now, SIGUSR1) == 1;
  siglongjmp(back, 1);
}

class DoorFaultGuard : public testing::Test {
 protected:
  DoorFaultGuard() {
    catch_faults();
    calls = 0;
  }
  ~DoorFaultGuard() override {
    release_faults();
    OpenedPages::close();
    struct sigaction standard{};
    keep_action(SIGSEGV, &standard, nullptr);
  }
  static void handle_by(void (*handler)(int), int flags = 0, bool masks_usr1 = false) {
    struct sigaction action{};
    action.sa_handler = handler;
    action.sa_flags = flags;
    if (masks_usr1) ::sigaddset(&action.sa_mask, SIGUSR1);
    ASSERT_TRUE(keep_action(SIGSEGV, &action, nullptr));
  }
  /// True if the program's handler gets the program's own fault. The handler leaves by a jump.
  static bool faults() {
    if (sigsetjmp(back, 1) != 0) return true;
    *reinterpret_cast<volatile int*>(8) = 1;
    return false;
  }
  static volatile std::byte* map(int protection) {
    return static_cast<volatile std::byte*>(
        ::mmap(nullptr, kPage, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  }
  static std::optional<int> protection(volatile std::byte* place) {
    return protection_of(reinterpret_cast<std::uint64_t>(place));
  }
};

TEST_F(DoorFaultGuard, AHandlerThatIsLeftByAJumpIsCalledAgain) {
  handle_by(count_and_jump);
  EXPECT_TRUE(faults());
  EXPECT_TRUE(faults());
  EXPECT_EQ(calls, 2);
}

TEST_F(DoorFaultGuard, AHandlerThatIsToBeResetIsCalledOnce) {
  handle_by(count_and_jump, static_cast<int>(SA_RESETHAND));
  EXPECT_TRUE(faults());
  struct sigaction now{};
  ASSERT_TRUE(keep_action(SIGSEGV, nullptr, &now));
  EXPECT_EQ(now.sa_handler, SIG_DFL);
}

TEST_F(DoorFaultGuard, AHandlerHasTheMaskThatItAskedFor) {
  handle_by(count_and_jump);
  EXPECT_TRUE(faults());
  EXPECT_FALSE(usr1_was_blocked);
  handle_by(count_and_jump, 0, true);
  EXPECT_TRUE(faults());
  EXPECT_TRUE(usr1_was_blocked);
}

TEST_F(DoorFaultGuard, AFaultInAHandlerEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  handle_by([](int) {
    if (++calls == 3) ::_exit(3);
    *reinterpret_cast<volatile int*>(16) = 1;
  });
  EXPECT_EXIT((void)faults(), testing::KilledBySignal(SIGSEGV), "");
}

TEST_F(DoorFaultGuard, AHandlerRunsOnTheStackThatItAskedFor) {
  static std::byte other[64 << 10];
  stack_t stack{}, before{};
  stack.ss_sp = other;
  stack.ss_size = sizeof other;
  ASSERT_EQ(::sigaltstack(&stack, &before), 0);
  static bool on_other = false;
  const auto look = [](int) {
    const auto* const here = static_cast<const std::byte*>(__builtin_frame_address(0));
    on_other = here >= other && here < other + sizeof other;
    siglongjmp(back, 1);
  };
  handle_by(look);
  EXPECT_TRUE(faults());
  EXPECT_FALSE(on_other);
  handle_by(look, SA_ONSTACK);
  EXPECT_TRUE(faults());
  EXPECT_TRUE(on_other);
  ::sigaltstack(&before, nullptr);
}

TEST_F(DoorFaultGuard, TheDeviceWritesToAProtectedPageWhichStaysProtected) {
  handle_by(count_and_jump);
  auto* const page = map(PROT_READ);
  {
    const FaultGuard guard;
    *page = std::byte{7};
  }
  EXPECT_EQ(std::byte(*page), std::byte{7});
  EXPECT_TRUE(OpenedPages::any());
  OpenedPages::close();
  EXPECT_EQ(protection(page), PROT_READ);
  EXPECT_FALSE(os::MemoryFaults::pending());
  EXPECT_EQ(calls, 0);
}

TEST_F(DoorFaultGuard, AFaultOnMissingMemoryIsReportedToTheDevice) {
  auto* const page = map(PROT_READ);
  ::munmap(const_cast<std::byte*>(page), kPage);
  {
    const FaultGuard guard;
    *page = std::byte{7};
  }
  EXPECT_TRUE(os::MemoryFaults::pending());
  ASSERT_EQ(noted_faults().size(), 1U);
  EXPECT_EQ(noted_faults()[0].address, reinterpret_cast<std::uint64_t>(page));
  release_faults();
  EXPECT_EQ(protection(page), std::nullopt);
  EXPECT_FALSE(os::MemoryFaults::pending());
}

TEST_F(DoorFaultGuard, AFaultBesideTheDeviceIsThatOfTheProgram) {
  handle_by(count_and_jump);
  auto* const page = map(PROT_READ);
  {
    const FaultGuard guard;
  }
  if (sigsetjmp(back, 1) == 0) *page = std::byte{7};
  EXPECT_EQ(calls, 1);
}

TEST_F(DoorFaultGuard, NoThreadIsCancelledInTheDevice) {
  expect_cancels();
  std::atomic<bool> is_inside = false, is_cancelled = false, has_left = false;
  std::thread thread([&] {
    const FaultGuard guard;
    is_inside = true;
    while (!is_cancelled) std::this_thread::yield();
    ::pthread_testcancel();
    has_left = true;
  });
  while (!is_inside) std::this_thread::yield();
  ::pthread_cancel(thread.native_handle());
  is_cancelled = true;
  thread.join();
  EXPECT_TRUE(has_left);
}

}  // namespace
}  // namespace softhca::door
