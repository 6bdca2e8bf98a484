#include "door/fault_guard.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>

#include "door/doorbell_traps.h"
#include "util/memory_faults.h"

namespace softhca::door {
namespace {

constexpr std::uint64_t kPage = 4096;
/// Of one turn: 16 MiB. Pages beyond them stay where they are.
constexpr std::size_t kFaultsMax = 4096;

/// Initial-exec: the general way to a thread's variables may allocate.
[[gnu::tls_model("initial-exec")]] constinit thread_local bool guarded = false;

constinit std::array<MemoryFault, kFaultsMax> faults{};
constinit std::atomic<std::size_t> fault_count = 0;

using SetAction = int(int, const struct sigaction*, struct sigaction*);

constinit std::atomic<bool> installed = false;
/// libc's own.
SetAction* set_action = nullptr;
/// What the program wants to be done.
constinit struct sigaction program_segv{}, program_bus{};

struct sigaction& program_action(int number) {
  return number == SIGBUS ? program_bus : program_segv;
}

bool was_write([[maybe_unused]] const void* context) {
#if defined(__x86_64__)
  constexpr greg_t kWriteBit = 2;  // of the page fault's error code
  return (static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR] & kWriteBit) != 0;
#else
  return true;
#endif
}

bool map_empty(std::uint64_t page, int how) {
  void* const wanted = reinterpret_cast<void*>(page);
  void* const got =
      ::mmap(wanted, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | how, -1, 0);
  if (got == wanted) return true;
  if (got != MAP_FAILED) ::munmap(got, kPage);  // a kernel that does not know MAP_FIXED_NOREPLACE
  return got == MAP_FAILED && errno == EEXIST;  // another thread was faster
}

void note(std::uint64_t page, bool write) {
  util::MemoryFaults::note();
  const auto at = fault_count.load(std::memory_order_relaxed);
  if (at == kFaultsMax) return;
  faults[at] = {.address = page, .was_write = write};
  fault_count.store(at + 1, std::memory_order_relaxed);
}

/// Makes the access possible. False if it cannot be done.
bool mend(const siginfo_t& info, const void* context) {
  const auto page = reinterpret_cast<std::uint64_t>(info.si_addr) & ~(kPage - 1);
  if (page == 0) return false;
  if (info.si_signo == SIGSEGV && info.si_code == SEGV_ACCERR) {
    // Pinned pages would be written to as well.
    return ::mprotect(reinterpret_cast<void*>(page), kPage, PROT_READ | PROT_WRITE) == 0;
  }
  // Behind the end of a file that was cut off there is a mapping, which goes.
  const int how = info.si_signo == SIGBUS ? MAP_FIXED : MAP_FIXED_NOREPLACE;
  if (!map_empty(page, how)) return false;
  note(page, was_write(context));
  return true;
}

/// As the kernel would have done it.
void call_program(int number, siginfo_t* info, void* context) {
  const auto& action = program_action(number);
  if ((action.sa_flags & SA_SIGINFO) != 0) return action.sa_sigaction(number, info, context);
  if (action.sa_handler == SIG_IGN && info->si_code <= 0) return;
  if (action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN) {
    return action.sa_handler(number);
  }
  // It faults again, and ends.
  struct sigaction standard{};
  standard.sa_handler = SIG_DFL;
  set_action(number, &standard, nullptr);
  if (info->si_code <= 0) ::raise(number);
}

void handle(int number, siginfo_t* info, void* context) {
  const int before = errno;
  if (number == SIGSEGV && info->si_code == SEGV_ACCERR && trap_doorbell(info->si_addr)) {
    errno = before;
    return;
  }
  if (guarded && info->si_code > 0 && mend(*info, context)) {
    errno = before;
    return;
  }
  errno = before;
  call_program(number, info, context);
}

}  // namespace

FaultGuard::FaultGuard() : before_(guarded) { guarded = true; }
FaultGuard::~FaultGuard() { guarded = before_; }

void catch_faults() {
  if (installed) return;
  set_action = reinterpret_cast<SetAction*>(::dlsym(RTLD_NEXT, "sigaction"));
  if (set_action == nullptr) return;
  struct sigaction action{};
  action.sa_sigaction = handle;
  // On the stack that the program has set up for it: a fault of its own may be that of its stack.
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART | SA_NODEFER;
  for (const int number : {SIGSEGV, SIGBUS}) {
    set_action(number, &action, &program_action(number));
  }
  installed = true;
}

bool catches_faults() { return installed; }

void unblock_faults() {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int number : {SIGSEGV, SIGBUS}) ::sigaddset(&set, number);
  ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

bool keep_action(int number, const struct sigaction* wanted, struct sigaction* before) {
  if ((number != SIGSEGV && number != SIGBUS) || !installed) return false;
  auto& kept = program_action(number);
  const auto old = kept;
  if (wanted != nullptr) kept = *wanted;
  if (before != nullptr) *before = old;
  return true;
}

std::span<const MemoryFault> noted_faults() { return std::span(faults).first(fault_count); }

void release_faults() {
  for (const auto& fault : noted_faults()) {
    ::munmap(reinterpret_cast<void*>(fault.address), kPage);
  }
  fault_count = 0;
  util::MemoryFaults::clear();
}

}  // namespace softhca::door
