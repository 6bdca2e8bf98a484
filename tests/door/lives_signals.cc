// Handlers of the program for signals that the door handles as well.
#include <arpa/inet.h>
#include <fcntl.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
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

/// A crash handler that is reset (SA_RESETHAND) and returns: the second fault ends the process.
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

/// With SA_NODEFER the handler is called again.
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

/// A handler that leaves by siglongjmp() is also called the next time.
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

/// The signals in the handler's mask are blocked while it runs.
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

/// A handler without SA_ONSTACK runs on the stack of its thread.
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

/// A thread is cancelled while it polls: the device goes on.
int cancelled() {
  const Loop loop;
  for (int i = 0; i != 50; ++i) {
    std::atomic<bool> polls = false, stops = false;
    std::thread thread([&] {
      polls = true;
      // With hardware this is no cancellation point.
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

/// Whether a thread of this process is in that system call.
bool is_in(pid_t thread, long call) {
  char name[64], text[16] = "";
  std::snprintf(name, sizeof name, "/proc/self/task/%d/syscall", thread);
  const int file = ::open(name, O_RDONLY | O_CLOEXEC);
  const auto size = file < 0 ? -1 : ::read(file, text, sizeof text - 1);
  ::close(file);
  // "running", or a number.
  return size > 0 && text[0] >= '0' && text[0] <= '9' && std::atol(text) == call;
}

/// A thread is cancelled while its call waits for the network: the call is no cancellation point,
/// and other calls go on meanwhile.
int cancelled_asker() {
  const Loop loop;
  static std::atomic<pid_t> id = 0;
  const auto ask = [](void* pd) -> void* {
    id = ::gettid();
    auto attributes = unknown_address();
    const bool found = ibv_create_ah(static_cast<ibv_pd*>(pd), &attributes) != nullptr;
    return const_cast<char*>(found ? "found\n" : errno == ETIMEDOUT ? "timed out\n" : "error\n");
  };
  pthread_t asker;
  expect(::pthread_create(&asker, nullptr, ask, loop.pd) == 0, "pthread_create");
  while (id == 0 || !is_in(id, SYS_nanosleep)) {
  }
  ::pthread_cancel(asker);
  ibv_device_attr attributes{};
  expect(ibv_query_device(loop.context, &attributes) == 0, "query");
  void* result = nullptr;
  ::pthread_join(asker, &result);
  say(result == PTHREAD_CANCELED ? "cancelled\n" : static_cast<const char*>(result));
  return 0;
}

/// Addresses that determine their MAC (a process's and a link-local one), but that no host has.
int nobody() {
  const Loop loop;
  for (const std::uint8_t index : {kGidIndex, std::uint8_t{1}}) {
    ibv_gid gid;
    expect(ibv_query_gid(loop.context, 1, index, &gid) == 0, "GID");
    gid.raw[15] = 254;
    auto attributes = unknown_address();
    attributes.grh.sgid_index = index;
    attributes.grh.dgid = gid;
    const bool found = ibv_create_ah(loop.pd, &attributes) != nullptr;
    std::puts(found ? "found" : errno == ETIMEDOUT ? "timed out" : "error");
  }
  return 0;
}

/// A signal handler that has interrupted a poll reads a file of sysfs.
int reads_in_handler() {
  static std::atomic<int> reads = 0;
  const Loop loop;
  ::signal(SIGALRM, [](int) {
    const int file = ::open("/sys/class/infiniband/mlx5_0/ports/1/state", O_RDONLY);
    if (file >= 0 && ::close(file) == 0) ++reads;
  });
  const itimerval often{.it_interval = {0, 1000}, .it_value = {0, 1000}};
  expect(::setitimer(ITIMER_REAL, &often, nullptr) == 0, "timer");
  ibv_wc completion;
  while (reads < 100) (void)ibv_poll_cq(loop.cq, 1, &completion);
  const itimerval never{};
  ::setitimer(ITIMER_REAL, &never, nullptr);
  std::puts("read");
  return 0;
}

/// A handler arms a CQ, although it has interrupted a call that arms it and may have the lock. The
/// next signal comes after the handler: it may wait for longer than the interval.
int arms_in_handler() {
  static std::atomic<int> armed = 0;
  static ibv_cq* cq;
  static constexpr itimerval kSoon{.it_interval = {}, .it_value = {0, 1000}};
  const Loop loop(true);
  cq = loop.cq;
  ::signal(SIGALRM, [](int) {
    if (ibv_req_notify_cq(cq, 1) == 0) ++armed;
    ::setitimer(ITIMER_REAL, &kSoon, nullptr);
  });
  expect(::setitimer(ITIMER_REAL, &kSoon, nullptr) == 0, "timer");
  while (armed < 50) (void)ibv_req_notify_cq(cq, 1);
  const itimerval never{};
  ::setitimer(ITIMER_REAL, &never, nullptr);
  std::puts("armed");
  return 0;
}

int count_descriptors() {
  int count = 0;
  for (int fd = 0; fd != 4096; ++fd) count += ::fcntl(fd, F_GETFD) >= 0;
  return count;
}

/// Threads are cancelled at the first cancellation point of a call, such as the reading of a file
/// in libibverbs: they leave no descriptor open and no lock taken.
int cancelled_early() {
  const Loop loop;
  static std::atomic<bool> may_go;
  ibv_gid gid;
  expect(ibv_query_gid(loop.context, 1, kGidIndex, &gid) == 0, "GID");
  static ibv_ah_attr to;
  to = unknown_address();
  to.grh.dgid = gid;
  const auto ask = [](void* pd) -> void* {
    ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr);
    while (!may_go) {
    }
    ::pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, nullptr);
    (void)ibv_create_ah(static_cast<ibv_pd*>(pd), &to);
    for (const auto* name :
         {"/sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_data",
          "/sys/class/infiniband/mlx5_0/ports/1/gids/3", "/dev/infiniband/uverbs0"}) {
      ::close(::open(name, O_RDONLY | O_CLOEXEC));
    }
    return nullptr;
  };
  const int before = count_descriptors();
  int cancelled = 0;
  for (int i = 0; i != 20; ++i) {
    may_go = false;
    pthread_t asker;
    expect(::pthread_create(&asker, nullptr, ask, loop.pd) == 0, "pthread_create");
    ::pthread_cancel(asker);
    may_go = true;
    void* result = nullptr;
    ::pthread_join(asker, &result);
    cancelled += result == PTHREAD_CANCELED;
    expect(ibv_create_ah(loop.pd, &to) != nullptr, "address handle");
  }
  std::printf("%d cancelled, %d more\n", cancelled, count_descriptors() - before);
  return 0;
}

/// Threads are cancelled at the moment when the event comes for which they wait. They write the
/// command themselves, since librdmacm has later cancellation points at which it holds a lock.
int cancelled_waiter() {
  for (int i = 0; i != 300; ++i) {
    static rdma_event_channel* channel;
    channel = ::rdma_create_event_channel();
    rdma_cm_id* id = nullptr;
    expect(channel != nullptr && ::rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP) == 0, "id");
    static std::atomic<pid_t> thread_id;
    thread_id = 0;
    const auto wait = [](void*) -> void* {
      thread_id = ::gettid();
      // GET_EVENT of rdma/rdma_user_cm.h, which conflicts with rdma_cma.h.
      alignas(8) static char event[512];
      const struct {
        std::uint32_t number = 12;
        std::uint16_t in = 8, out = sizeof event;
        std::uint64_t response = reinterpret_cast<std::uintptr_t>(&event);
      } command;
      (void)!::write(channel->fd, &command, sizeof command);
      return nullptr;
    };
    pthread_t waiter;
    expect(::pthread_create(&waiter, nullptr, wait, nullptr) == 0, "pthread_create");
    while (thread_id == 0 || !is_in(thread_id, SYS_read)) {
    }
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    expect(::rdma_resolve_addr(id, nullptr, reinterpret_cast<sockaddr*>(&to), 2000) == 0,
           "resolution");
    ::pthread_cancel(waiter);
    ::pthread_join(waiter, nullptr);
    // rdma_destroy_id() would wait for the event, which librdmacm has not read.
    ::close(channel->fd);
  }
  say("all have ended\n");
  return 0;
}

void show_mask(int) {
  sigset_t now;
  expect(::pthread_sigmask(SIG_BLOCK, nullptr, &now) == 0, "mask");
  std::printf("%d %d\n", ::sigismember(&now, SIGSEGV), ::sigismember(&now, SIGINT));
}

/// A helper that blocks all signals before a device is opened does not keep the device awake, and a
/// doorbell in a handler that blocks them does not kill the process.
int blocks_early() {
  struct sigaction action{};
  action.sa_handler = show_mask;
  ::sigfillset(&action.sa_mask);
  expect(::sigaction(SIGUSR1, &action, nullptr) == 0, "sigaction");
  ::raise(SIGUSR1);
  expect(::pthread_sigmask(SIG_BLOCK, &action.sa_mask, nullptr) == 0, "mask");
  show_mask(0);
  return 0;
}

/// A handler opens a file on a stack that has little more room than the signal frame takes.
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
  // None of these was called before, so each symbol would be looked up here.
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
    if (::getcwd(target, sizeof target) != nullptr) say("getcwd\n");
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
                           {"cancelled", cancelled},
                           {"cancelled-waiter", cancelled_waiter},
                           {"cancelled-asker", cancelled_asker},
                           {"cancelled-early", cancelled_early},
                           {"reads-in-handler", reads_in_handler},
                           {"arms-in-handler", arms_in_handler},
                           {"nobody", nobody}};

}  // namespace

std::span<const Case> signals() { return kCases; }

}  // namespace lives
