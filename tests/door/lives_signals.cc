// Handlers of the program for signals that the door handles as well.
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "lives.h"

namespace lives {
namespace {

void crash() { *reinterpret_cast<volatile int*>(8) = 1; }

void say(const char* text) { (void)!::write(STDOUT_FILENO, text, std::strlen(text)); }

void install(int flags, void (*handler)(int), bool masks_usr1 = false) {
  struct sigaction action{};
  action.sa_handler = handler;
  action.sa_flags = flags;
  if (masks_usr1) sigaddset(&action.sa_mask, SIGUSR1);
  expect(::sigaction(SIGSEGV, &action, nullptr) == 0, "sigaction");
}

/// A crash reporter that returns: the second fault ends the process.
int reset_handler() {
  const Loop loop;
  install(static_cast<int>(SA_RESETHAND), [](int) { say("x\n"); });
  crash();
  return 0;
}

int sysv_handler() {
  const Loop loop;
  ::sysv_signal(SIGSEGV, [](int) { say("x\n"); });
  crash();
  return 0;
}

/// A fault in the handler ends the process.
int fault_in_handler() {
  const Loop loop;
  install(0, [](int) {
    say("x\n");
    crash();
  });
  crash();
  return 0;
}

/// Unless the program says that it may.
int nested_handler() {
  const Loop loop;
  static int depth = 0;
  install(SA_NODEFER, [](int) {
    say("x\n");
    if (++depth == 3) ::_exit(7);
    crash();
  });
  crash();
  return 0;
}

sigjmp_buf back;

/// A handler that is left by a jump is called the next time, too.
int jumps() {
  const Loop loop;
  install(0, [](int) { siglongjmp(back, 1); });
  static int times = 0;
  while (times != 3) {
    if (sigsetjmp(back, 1) == 0) crash();
    say("x\n");
    ++times;
  }
  return 0;
}

/// What the handler wants to be blocked.
int masked() {
  const Loop loop;
  ::signal(SIGUSR1, [](int) { say("usr1\n"); });
  install(
      0,
      [](int) {
        ::raise(SIGUSR1);
        say("handler\n");
        siglongjmp(back, 1);
      },
      true);
  if (sigsetjmp(back, 1) == 0) crash();
  return 0;
}

/// A handler that wants no other stack runs on the stack of its thread.
int own_stack() {
  const Loop loop;
  static char other[64 << 10];
  stack_t stack{};
  stack.ss_sp = other;
  stack.ss_size = sizeof other;
  expect(::sigaltstack(&stack, nullptr) == 0, "sigaltstack");
  const auto where = [](int) {
    const char* const here = static_cast<const char*>(__builtin_frame_address(0));
    say(here >= other && here < other + sizeof other ? "other stack\n" : "own stack\n");
    siglongjmp(back, 1);
  };
  install(0, where);
  if (sigsetjmp(back, 1) == 0) crash();
  install(SA_ONSTACK, where);
  if (sigsetjmp(back, 1) == 0) crash();
  return 0;
}

/// A thread that is cancelled while it polls: the device goes on.
int cancelled() {
  const Loop loop;
  for (int i = 0; i != 50; ++i) {
    std::atomic<bool> polls = false, stops = false;
    std::thread thread([&] {
      polls = true;
      // No cancellation point with hardware.
      for (ibv_wc completion{}; !stops; (void)ibv_poll_cq(loop.cq, 1, &completion)) {
      }
    });
    while (!polls) {
    }
    ::pthread_cancel(thread.native_handle());
    ibv_device_attr attributes{};
    expect(ibv_query_device(loop.context, &attributes) == 0, "query");
    stops = true;
    thread.join();
  }
  say("goes on\n");
  return 0;
}

/// A helper that blocks all signals before a device is opened does not keep the device awake.
int blocks_early() {
  sigset_t all, now;
  ::sigfillset(&all);
  expect(::pthread_sigmask(SIG_BLOCK, &all, nullptr) == 0, "mask");
  expect(::pthread_sigmask(SIG_BLOCK, nullptr, &now) == 0, "mask");
  std::printf("%d %d\n", ::sigismember(&now, SIGSEGV), ::sigismember(&now, SIGINT));
  return 0;
}

/// A handler that has little more stack than its frame takes opens a file.
int small_stack() {
  constexpr std::size_t kPage = 4096, kArea = 32 * kPage;
  auto* const area = static_cast<char*>(
      ::mmap(nullptr, kArea, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  expect(::mprotect(area, kPage, PROT_NONE) == 0, "mprotect");
  stack_t stack{};
  stack.ss_sp = area + kPage;
  stack.ss_size = static_cast<std::size_t>(::sysconf(_SC_MINSIGSTKSZ)) + 2048;
  expect(::sigaltstack(&stack, nullptr) == 0, "sigaltstack");
  struct sigaction action{};
  // None of these was called before: what there is to look up is looked up here.
  action.sa_handler = [](int) {
    static struct stat status;
    static struct statx extended;
    static char target[64];
    const int fd = ::open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) say("opened\n");
    ::close(fd);
    if (::stat("/proc/self/maps", &status) == 0) say("stat\n");
    if (::statx(AT_FDCWD, "/proc/self/maps", 0, STATX_SIZE, &extended) == 0) say("statx\n");
    if (::readlink("/proc/self/exe", target, sizeof target) > 0) say("readlink\n");
    if (::readlinkat(AT_FDCWD, "/proc/self/exe", target, sizeof target) > 0) say("readlinkat\n");
    if (::faccessat(AT_FDCWD, "/proc/self/maps", R_OK, 0) == 0) say("faccessat\n");
    if (::chdir("/proc/self") == 0) say("chdir\n");
  };
  action.sa_flags = SA_ONSTACK;
  expect(::sigaction(SIGUSR1, &action, nullptr) == 0, "sigaction");
  ::raise(SIGUSR1);
  return 0;
}

constexpr Case kCases[] = {{"small-stack", small_stack},
                           {"blocks-early", blocks_early},
                           {"reset-handler", reset_handler},
                           {"sysv-handler", sysv_handler},
                           {"fault-in-handler", fault_in_handler},
                           {"nested-handler", nested_handler},
                           {"jumps", jumps},
                           {"masked", masked},
                           {"own-stack", own_stack},
                           {"cancelled", cancelled}};

}  // namespace

std::span<const Case> signals() { return kCases; }

}  // namespace lives
