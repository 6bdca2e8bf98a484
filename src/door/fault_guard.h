// The device uses the memory of the program as it stands, and the program may take it away, or
// protect it, while it is registered. Hardware has such pages pinned; here the access faults. What
// is protected is opened for the device, and closed again (stand_ins.h). Where there is nothing,
// the handler of the signal puts an empty page, so that the access ends, and notes the address: the
// engine then treats what was done in this turn as not done (host-door contract 9.5).
#pragma once

#include <csignal>
#include <cstdint>
#include <span>

namespace softhca::door {

/// While one exists in a thread, faults of this thread are the device's, and it cannot be
/// cancelled.
class FaultGuard {
 public:
  FaultGuard();
  ~FaultGuard();
  FaultGuard(const FaultGuard&) = delete;
  FaultGuard& operator=(const FaultGuard&) = delete;
  /// In this thread: a handler of a signal has interrupted the device where one exists.
  static bool exists();

 private:
  bool before_;
  bool cancellable_ = false;  ///< before, while threads may be cancelled
};

/// The program is about to cancel a thread: guards that are made from now on keep that off.
void expect_cancels();

/// Handles SIGSEGV and SIGBUS from now on. What the program has installed for them is called for
/// all other faults.
void catch_faults();
bool catches_faults();
/// Lets the signals through that catch_faults() handles, in this thread.
void unblock_faults();

struct MemoryFault {
  std::uint64_t address = 0;  ///< of the page
  bool was_write = false;
};
/// The faults since release_faults(). With the engine's lock.
std::span<const MemoryFault> noted_faults();
/// Takes away the empty pages.
void release_faults();

/// sigaction() of the program for SIGSEGV or SIGBUS: it is kept, and gets what is not ours. False:
/// the kernel has it (another signal, or catch_faults() was not called).
bool keep_action(int number, const struct sigaction* wanted, struct sigaction* before);

}  // namespace softhca::door
