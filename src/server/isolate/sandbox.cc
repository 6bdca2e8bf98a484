#include "server/isolate/sandbox.h"

#include <fcntl.h>
#include <linux/landlock.h>
#include <linux/sched.h>
#include <seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <iterator>
#include <memory>

namespace softhca::server {
namespace {

// Sanitizers read /proc, start programs and use further system calls, especially for their reports.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#elif defined(__has_feature)
constexpr bool kSanitized = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
constexpr bool kSanitized = false;
#endif

/// Defined here, since the build machine's linux/landlock.h may be older than the running kernel.
struct Ruleset {
  std::uint64_t files;
  std::uint64_t networks;  ///< from version 4 of the interface
  std::uint64_t scopes;    ///< from version 6
};

/// All rights that the kernel knows, by the version of its interface.
Ruleset everything_of(long version, std::size_t& size) {
  constexpr std::uint64_t kFileRights[] = {0, 13, 14, 15, 15, 16};
  constexpr long kLast = std::size(kFileRights) - 1;
  Ruleset all{};
  all.files = (std::uint64_t{1} << kFileRights[std::min(version, kLast)]) - 1;
  size = sizeof all.files;
  if (version >= 4) {
    all.networks = 3;  // TCP: bind and connect
    size += sizeof all.networks;
  }
  if (version >= 6) {
    all.scopes = 3;  // access to others' abstract sockets, and signals to others
    size += sizeof all.scopes;
  }
  return all;
}

/// Denies everything that Landlock can deny, without exceptions. False if the kernel lacks
/// Landlock.
util::Result<bool> give_up_files() {
  const auto version =
      ::syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  if (version < 1) return false;
  std::size_t size = 0;
  const auto all = everything_of(version, size);
  const auto ruleset = static_cast<int>(::syscall(SYS_landlock_create_ruleset, &all, size, 0));
  if (ruleset < 0) return util::fail_errno("sandbox: landlock_create_ruleset");
  const auto restricted = ::syscall(SYS_landlock_restrict_self, ruleset, 0);
  const int error = errno;
  ::close(ruleset);
  errno = error;
  if (restricted != 0) return util::fail_errno("sandbox: landlock_restrict_self");
  return true;
}

/// Allowed with any arguments. Calls that open, execute, or reach other processes are missing.
constexpr int kAllowed[] = {
    // Messages, wakeups and time.
    SCMP_SYS(read), SCMP_SYS(write), SCMP_SYS(writev), SCMP_SYS(recvmsg), SCMP_SYS(recvfrom),
    SCMP_SYS(sendmsg), SCMP_SYS(sendto), SCMP_SYS(accept4), SCMP_SYS(shutdown), SCMP_SYS(close),
    SCMP_SYS(poll), SCMP_SYS(ppoll), SCMP_SYS(epoll_create1), SCMP_SYS(epoll_ctl),
    SCMP_SYS(epoll_wait), SCMP_SYS(epoll_pwait), SCMP_SYS(eventfd2), SCMP_SYS(timerfd_create),
    SCMP_SYS(timerfd_settime), SCMP_SYS(clock_gettime), SCMP_SYS(clock_nanosleep),
    SCMP_SYS(nanosleep), SCMP_SYS(restart_syscall),
    // Interrupts: os/event_signal.h.
    SCMP_SYS(io_submit), SCMP_SYS(io_destroy),
    // Memory: the clients', the devices' pages for it, and the heap.
    SCMP_SYS(munmap), SCMP_SYS(mremap), SCMP_SYS(madvise), SCMP_SYS(brk), SCMP_SYS(memfd_create),
    SCMP_SYS(ftruncate), SCMP_SYS(fstat), SCMP_SYS(fstatfs),
    // The process's own threads and signals.
    SCMP_SYS(futex), SCMP_SYS(set_robust_list), SCMP_SYS(rseq), SCMP_SYS(sched_yield),
    SCMP_SYS(sched_getaffinity), SCMP_SYS(getpid), SCMP_SYS(gettid), SCMP_SYS(getrandom),
    SCMP_SYS(rt_sigaction), SCMP_SYS(rt_sigprocmask), SCMP_SYS(rt_sigreturn), SCMP_SYS(exit),
    SCMP_SYS(exit_group)};

constexpr int kFileCommands[] = {F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_GET_SEALS, F_ADD_SEALS};

/// Conditions on argument `index` of a call.
scmp_arg_cmp is(unsigned index, std::uint64_t value) {
  return {.arg = index, .op = SCMP_CMP_EQ, .datum_a = value, .datum_b = 0};
}
scmp_arg_cmp has_bits(unsigned index, std::uint64_t mask, std::uint64_t value) {
  return {.arg = index, .op = SCMP_CMP_MASKED_EQ, .datum_a = mask, .datum_b = value};
}

/// True if all rules were added.
bool add_rules(scmp_filter_ctx filter) {
  bool good = true;
  const auto allow = [&](int call, auto... conditions) {
    good &=
        ::seccomp_rule_add(filter, SCMP_ACT_ALLOW, call, sizeof...(conditions), conditions...) == 0;
  };
  for (const int call : kAllowed) allow(call);
  for (const int command : kFileCommands) {
    allow(SCMP_SYS(fcntl), is(1, static_cast<std::uint32_t>(command)));
  }
  // No new executable memory.
  allow(SCMP_SYS(mmap), has_bits(2, PROT_EXEC, 0));
  allow(SCMP_SYS(mprotect), has_bits(2, PROT_EXEC, 0));
  // Used for fstat() by the C library.
  allow(SCMP_SYS(newfstatat), is(3, AT_EMPTY_PATH));
  // Threads, but no processes. The arguments of clone3 cannot be checked; without it the C library
  // uses clone.
  allow(SCMP_SYS(clone), has_bits(0, CLONE_THREAD, CLONE_THREAD));
  good &= ::seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0) == 0;
  // Limits may be read (os/file_size.h).
  allow(SCMP_SYS(prlimit64), is(0, 0), is(2, 0));
  // Thread names.
  allow(SCMP_SYS(prctl), is(0, PR_SET_NAME));
  // abort() of this process only.
  allow(SCMP_SYS(tgkill), is(0, static_cast<std::uint32_t>(::getpid())));
  return good;
}

util::Result<void> give_up_calls() {
  const std::unique_ptr<void, void (*)(scmp_filter_ctx)> filter(
      ::seccomp_init(SCMP_ACT_KILL_PROCESS), ::seccomp_release);
  if (filter == nullptr) return util::fail("sandbox: seccomp_init");
  if (::seccomp_attr_set(filter.get(), SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS) != 0 ||
      !add_rules(filter.get())) {
    return util::fail("sandbox: the rules of the seccomp filter");
  }
  if (const auto error = ::seccomp_load(filter.get()); error != 0) {
    errno = -error;
    return util::fail_errno("sandbox: seccomp_load");
  }
  return {};
}

}  // namespace

util::Result<std::vector<std::string>> enter_sandbox() {
  std::vector<std::string> remarks;
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
    return util::fail_errno("sandbox: PR_SET_NO_NEW_PRIVS");
  }
  if (kSanitized) {
    remarks.emplace_back("built with sanitizers: its system calls and files are not restricted");
    return remarks;
  }
  const auto without_files = give_up_files();
  if (!without_files) return tl::unexpected(without_files.error());
  if (!*without_files) {
    remarks.emplace_back("the kernel has no Landlock: only seccomp keeps it from the file system");
  }
  if (auto given_up = give_up_calls(); !given_up) return tl::unexpected(given_up.error());
  return remarks;
}

}  // namespace softhca::server
