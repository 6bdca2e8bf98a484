// Processes with few rights: limits, a filter of system calls, another user.
#include <sys/resource.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "../unit/os/forbidden_call.h"
#include "lives.h"

namespace lives {
namespace {

/// A limit on the size of files.
int small_files() {
  const rlimit limit{1000 << 10, 1000 << 10};
  expect(::setrlimit(RLIMIT_FSIZE, &limit) == 0, "setrlimit");
  std::printf("%s\n", open_first() != nullptr ? "opened" : "not opened");
  return 0;
}

/// A limit on memory that is too small for a device.
int little_memory() {
  const rlimit limit{50 << 20, 50 << 20};
  expect(::setrlimit(RLIMIT_AS, &limit) == 0, "setrlimit");
  std::printf("%s\n", open_first() != nullptr ? "opened" : "not opened");
  return 0;
}

/// Registers more memory than `ulimit -l` allows.
int locks_much() {
  const rlimit limit{64 << 10, 64 << 10};
  expect(::setrlimit(RLIMIT_MEMLOCK, &limit) == 0, "setrlimit");
  auto* const pd = ibv_alloc_pd(open_first());
  static char bytes[128 << 10];
  constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE;
  const bool registered = ibv_reg_mr(pd, bytes, sizeof bytes, kAccess) != nullptr;
  std::printf("%s\n", registered ? "registered" : std::strerror(errno));
  return 0;
}

/// The same if the limit is enforced.
int locks_too_much() {
  ::setenv("SOFTHCA_MEMLOCK", "enforce", 1);
  return locks_much();
}

/// A limit on threads.
int no_threads() {
  const rlimit limit{0, 0};
  expect(::setrlimit(RLIMIT_NPROC, &limit) == 0, "setrlimit");
  std::printf("%s\n", open_first() != nullptr ? "opened" : "not opened");
  return 0;
}

/// A seccomp filter forbids the calls that copy a process's memory.
int no_copies() {
  expect(softhca::test::forbid_call(SYS_process_vm_readv, EPERM), "seccomp");
  std::printf("%s\n", open_first() != nullptr ? "opened" : "not opened");
  return 0;
}

/// The program runs as another user than the run: the library warns.
int another_user() {
  int count = 0;
  (void)ibv_get_device_list(&count);
  std::printf("%d devices\n", count);
  return 0;
}

constexpr Case kCases[] = {{"little-memory", little_memory}, {"another-user", another_user},
                           {"no-copies", no_copies},         {"small-files", small_files},
                           {"locks-much", locks_much},       {"locks-too-much", locks_too_much},
                           {"no-threads", no_threads}};

}  // namespace

std::span<const Case> limits() { return kCases; }

}  // namespace lives
