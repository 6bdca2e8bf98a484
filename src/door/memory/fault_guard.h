// The device accesses the program's memory directly. The program may unmap or protect registered
// memory, which hardware would have pinned; here the access faults.
//
// Protected pages are opened for the device, and closed again (stand_ins.h). For an unmapped page
// the signal handler maps an empty page, so that the access completes, and records the address. The
// engine then treats the work of this turn as not done (kernel interface 9.5).
#pragma once

#include <csignal>
#include <cstdint>
#include <span>

namespace softhca::door {

/// While one exists in a thread, the thread cannot be cancelled: a cancellation would unwind
/// through destructors.
class CancelGuard {
 public:
  CancelGuard();
  ~CancelGuard();
  CancelGuard(const CancelGuard&) = delete;
  CancelGuard& operator=(const CancelGuard&) = delete;

 private:
  bool cancellable_ = false;  ///< before, while threads may be cancelled
};

/// While one exists in a thread, faults of the thread are the device's, and the thread cannot be
/// cancelled.
class FaultGuard {
 public:
  FaultGuard();
  ~FaultGuard();
  FaultGuard(const FaultGuard&) = delete;
  FaultGuard& operator=(const FaultGuard&) = delete;
  /// Whether this thread has one. In a signal handler: the signal has interrupted the device.
  static bool exists();

 private:
  const CancelGuard cancel_;
  bool before_;
};

/// The program is about to cancel a thread: guards created from now on disable cancellation.
void expect_cancels();

/// Installs handlers of SIGSEGV and SIGBUS. Faults that do not belong to the device go to the
/// program's own handlers.
void catch_faults();
bool catches_faults();
/// Unblocks the signals that catch_faults() handles, in this thread.
void unblock_faults();

struct MemoryFault {
  std::uint64_t address = 0;  ///< of the page
  bool was_write = false;
};
/// The faults since release_faults(). Call with the engine's lock.
std::span<const MemoryFault> noted_faults();
/// Unmaps the empty pages.
void release_faults();

/// Serves sigaction() of the program for SIGSEGV or SIGBUS: stores its action, which gets the
/// faults that are not the device's. False: the kernel must serve it (another signal, or no
/// catch_faults()).
bool keep_action(int number, const struct sigaction* wanted, struct sigaction* before);

}  // namespace softhca::door
