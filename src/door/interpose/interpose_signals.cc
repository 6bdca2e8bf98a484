// Handlers that the program installs for faults. The device's handler goes first (fault_guard.h).
// Other signals pass.
#include <pthread.h>

#include <csignal>

#include "door/interpose/interpose.h"
#include "door/kernel.h"
#include "door/memory/fault_guard.h"

namespace softhca::door {
namespace {

using Handler = void (*)(int);

SOFTHCA_NEXT Next<int, int, const struct sigaction*, struct sigaction*> next_sigaction("sigaction");
SOFTHCA_NEXT Next<Handler, int, Handler> next_signal("signal");
SOFTHCA_NEXT Next<Handler, int, Handler> next_sysv_signal("__sysv_signal");

/// False: the kernel must handle the signal.
bool keep_handler(int number, Handler handler, int flags, Handler& before) {
  struct sigaction wanted{}, old{};
  wanted.sa_handler = handler;
  wanted.sa_flags = flags;
  if (!keep_action(number, &wanted, &old)) return false;
  before = old.sa_handler;
  return true;
}

/// Whether SIGSEGV and SIGBUS stay unblocked. The device may fault in any thread that calls it, and
/// a blocked fault kills the process. This applies even before a device is opened: helper threads
/// may exist by then, and their masks cannot be changed later.
bool keeps_faults_open() { return catches_faults() || wanted_paths() != nullptr; }

sigset_t without_faults(const sigset_t& wanted) {
  sigset_t without = wanted;
  ::sigdelset(&without, SIGSEGV);
  ::sigdelset(&without, SIGBUS);
  return without;
}

}  // namespace

SOFTHCA_INTERPOSE(int, door_sigaction, "sigaction",
                  (int number, const struct sigaction* wanted, struct sigaction* before)) {
  if (keep_action(number, wanted, before)) return 0;
  if (wanted == nullptr || !keeps_faults_open()) return next_sigaction(number, wanted, before);
  struct sigaction unblocked = *wanted;
  unblocked.sa_mask = without_faults(wanted->sa_mask);
  return next_sigaction(number, static_cast<const struct sigaction*>(&unblocked), before);
}

SOFTHCA_INTERPOSE(Handler, door_signal, "signal", (int number, Handler handler)) {
  Handler before;
  if (keep_handler(number, handler, SA_RESTART, before)) return before;
  return next_signal(number, handler);
}

SOFTHCA_INTERPOSE(Handler, door_sysv_signal, "__sysv_signal", (int number, Handler handler)) {
  Handler before;
  if (keep_handler(number, handler, static_cast<int>(SA_RESETHAND | SA_NODEFER), before)) {
    return before;
  }
  return next_sysv_signal(number, handler);
}

// RDMA calls must not be cancellation points, whatever the door does in them.
SOFTHCA_INTERPOSE(int, door_pthread_cancel, "pthread_cancel", (pthread_t thread)) {
  static SOFTHCA_NEXT Next<int, pthread_t> next("pthread_cancel");
  if (wanted_paths() != nullptr) prepare_for_cancels();
  return next(thread);
}

namespace {

SOFTHCA_NEXT Next<int, int, const sigset_t*, sigset_t*> next_pthread_sigmask("pthread_sigmask");
SOFTHCA_NEXT Next<int, int, const sigset_t*, sigset_t*> next_sigprocmask("sigprocmask");

int change_mask(Next<int, int, const sigset_t*, sigset_t*>& next, int how, const sigset_t* wanted,
                sigset_t* before) {
  if (wanted == nullptr || how == SIG_UNBLOCK || !keeps_faults_open()) {
    return next(how, wanted, before);
  }
  const sigset_t without = without_faults(*wanted);
  return next(how, static_cast<const sigset_t*>(&without), before);
}

}  // namespace

SOFTHCA_INTERPOSE(int, door_pthread_sigmask, "pthread_sigmask",
                  (int how, const sigset_t* wanted, sigset_t* before)) {
  return change_mask(next_pthread_sigmask, how, wanted, before);
}

SOFTHCA_INTERPOSE(int, door_sigprocmask, "sigprocmask",
                  (int how, const sigset_t* wanted, sigset_t* before)) {
  return change_mask(next_sigprocmask, how, wanted, before);
}

SOFTHCA_INTERPOSE_ALIAS(Handler, door_sysv_signal_alias, "sysv_signal", (int, Handler),
                        "__sysv_signal");
SOFTHCA_INTERPOSE_ALIAS(Handler, door_bsd_signal, "bsd_signal", (int, Handler), "signal");
SOFTHCA_INTERPOSE_ALIAS(Handler, door_ssignal, "ssignal", (int, Handler), "signal");

}  // namespace softhca::door
