#include "door/memory/fault_guard.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>

#include "door/memory/doorbell_traps.h"
#include "door/memory/memory_keys.h"
#include "door/memory/pages.h"
#include "door/memory/stand_ins.h"
#include "os/memory_faults.h"

namespace softhca::door {
namespace {

/// Most faults of one turn: 16 MiB. Further pages are not recorded, and their stand-ins stay.
constexpr std::size_t kFaultsMax = 4096;

/// Initial-exec: other TLS models may allocate on first access.
[[gnu::tls_model("initial-exec")]] constinit thread_local bool guarded = false;
constinit std::atomic<bool> cancels = false;

constinit std::array<MemoryFault, kFaultsMax> faults{};
constinit std::atomic<std::size_t> fault_count = 0;

using SetAction = int(int, const struct sigaction*, struct sigaction*);

constinit std::atomic<bool> installed = false;
/// libc's sigaction().
SetAction* set_action = nullptr;
/// The program's own actions.
constinit struct sigaction program_segv{}, program_bus{};

struct sigaction& program_action(int number) {
  return number == SIGBUS ? program_bus : program_segv;
}

/// Changes the kernel's mask. The program's own changes go through interpose_signals.cc.
void change_mask(int how, const sigset_t* set, sigset_t* before) {
  constexpr std::size_t kSize = 8;
  ::syscall(SYS_rt_sigprocmask, how, set, before, kSize);
}

/// Restores the default action: the access faults again, and the process ends.
void end_by(int number, const siginfo_t& info) {
  struct sigaction standard{};
  standard.sa_handler = SIG_DFL;
  set_action(number, &standard, nullptr);
  if (info.si_code <= 0) ::raise(number);
}

bool was_write([[maybe_unused]] const void* context) {
#if defined(__x86_64__)
  constexpr greg_t kWriteBit = 2;  // write bit of the page fault's error code
  return (static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR] & kWriteBit) != 0;
#else
  return true;
#endif
}

void note(std::uint64_t page, bool write) {
  os::MemoryFaults::note();
  const auto at = fault_count.load(std::memory_order_relaxed);
  if (at == kFaultsMax) return;
  faults[at] = {.address = page, .was_write = write};
  fault_count.store(at + 1, std::memory_order_relaxed);
}

/// Makes the access possible. False if that fails.
bool mend(const siginfo_t& info, void* context) {
  const auto page = reinterpret_cast<std::uint64_t>(info.si_addr) & ~(kPage - 1);
  if (page == 0) return false;
  const bool write = was_write(context);
  if (info.si_signo == SIGSEGV && info.si_code == SEGV_PKUERR) return lift_memory_keys(context);
  const bool is_there = info.si_signo == SIGBUS || info.si_code == SEGV_ACCERR;
  if (info.si_signo == SIGSEGV && is_there && OpenedPages::open(page, write)) return true;
  switch (is_there ? StandIns::replace(page) : StandIns::place(page)) {
    case StandIns::Placed::kFailed:
      return false;
    case StandIns::Placed::kTaken:
      return true;  // mapped by another thread: repeat the access
    case StandIns::Placed::kPlaced:
      note(page, write);
  }
  return true;
}

/// Sets the signal mask that the kernel would set for the program's handler. SIGSEGV and SIGBUS
/// themselves stay unblocked, since the handler may use the device. Two rarely used signals mark
/// instead that the program is still in its handler: returning, or a jump that restores the mask,
/// unblocks them.
class HandlerMask {
 public:
  HandlerMask(int number, const struct sigaction& action, const ucontext_t& interrupted)
      : inside_(inside[number == SIGBUS]), mark_(number == SIGBUS ? SIGRTMAX - 1 : SIGRTMAX) {
    is_nested_ = inside_ && ::sigismember(&interrupted.uc_sigmask, mark_) == 1;
    if (is_nested_) return;
    sigset_t blocked = action.sa_mask;
    ::sigdelset(&blocked, SIGSEGV);
    ::sigdelset(&blocked, SIGBUS);
    if ((action.sa_flags & SA_NODEFER) == 0) {
      ::sigaddset(&blocked, mark_);
      inside_ = true;
    }
    change_mask(SIG_BLOCK, &blocked, nullptr);
  }
  ~HandlerMask() {
    if (!is_nested_) inside_ = false;
  }
  HandlerMask(const HandlerMask&) = delete;
  HandlerMask& operator=(const HandlerMask&) = delete;

  /// The signal came again in its own handler, which blocks it. The kernel would end the process.
  bool is_nested() const { return is_nested_; }

 private:
  [[gnu::tls_model("initial-exec")]] static constinit thread_local bool inside[2];

  bool& inside_;
  int mark_;
  bool is_nested_ = false;
};
constinit thread_local bool HandlerMask::inside[2] = {};

bool has_handler(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) != 0 ||
         (action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN);
}

/// Does what the kernel would do with the signal.
void call_program(int number, siginfo_t* info, void* context) {
  const auto action = program_action(number);
  if (!has_handler(action)) {
    if (action.sa_handler == SIG_IGN && info->si_code <= 0) return;
    return end_by(number, *info);
  }
  const HandlerMask mask(number, action, *static_cast<const ucontext_t*>(context));
  if (mask.is_nested()) return end_by(number, *info);
  if ((action.sa_flags & static_cast<int>(SA_RESETHAND)) != 0) {
    program_action(number) = {};
  }
  if ((action.sa_flags & SA_SIGINFO) != 0) return action.sa_sigaction(number, info, context);
  action.sa_handler(number);
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

CancelGuard::CancelGuard() {
  if (!cancels.load(std::memory_order_relaxed)) return;
  int before = PTHREAD_CANCEL_DISABLE;
  ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
  cancellable_ = before == PTHREAD_CANCEL_ENABLE;
}

CancelGuard::~CancelGuard() {
  if (cancellable_) ::pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, nullptr);
}

FaultGuard::FaultGuard() : before_(guarded) { guarded = true; }

FaultGuard::~FaultGuard() {
  guarded = before_;
  if (has_lifted_memory_keys()) restore_memory_keys();
}

bool FaultGuard::exists() { return guarded; }

void expect_cancels() { cancels = true; }

namespace {

/// Installs handle(), on the signal stack if the program's handler uses it. If the program has no
/// handler, on the signal stack too: the program's own fault may be a stack overflow.
void install(int number) {
  const auto& programs = program_action(number);
  const int stack = has_handler(programs) ? programs.sa_flags & SA_ONSTACK : SA_ONSTACK;
  struct sigaction action{};
  action.sa_sigaction = handle;
  action.sa_flags = SA_SIGINFO | SA_RESTART | SA_NODEFER | stack;
  set_action(number, &action, nullptr);
}

}  // namespace

void catch_faults() {
  StandIns::prepare();
  if (installed) return;
  set_action = reinterpret_cast<SetAction*>(::dlsym(RTLD_NEXT, "sigaction"));
  if (set_action == nullptr) return;
  for (const int number : {SIGSEGV, SIGBUS}) {
    set_action(number, nullptr, &program_action(number));
    install(number);
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
  if (wanted != nullptr) {
    kept = *wanted;
    install(number);
  }
  if (before != nullptr) *before = old;
  return true;
}

std::span<const MemoryFault> noted_faults() { return std::span(faults).first(fault_count); }

void release_faults() {
  StandIns::release();
  fault_count = 0;
  os::MemoryFaults::clear();
}

}  // namespace softhca::door
