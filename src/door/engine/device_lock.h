// The lock of all devices of a process. Calls of the program and the engine's thread take it, and
// never block while they hold it.
#pragma once

#include <atomic>
#include <chrono>
#include <mutex>

#include "door/process/own_calls.h"

namespace softhca::door {

/// A thread of the program has OwnCalls before it takes the lock, and a FaultGuard soon after. If a
/// signal handler finds the first alone, its thread waits for the lock, or has it.
class DeviceLock {
 public:
  /// How long the end of the process, or a fork, waits for a thread that is halfway through a call.
  static constexpr auto kPatienceAtEnd = std::chrono::milliseconds(100);

  void lock() { mutex_.lock(); }
  bool try_lock() { return mutex_.try_lock(); }
  void unlock() { mutex_.unlock(); }

  /// For operations during which no thread may be in the middle of a turn, such as fork(). False:
  /// the lock was not free in time.
  bool hold() {
    const OwnCalls own;
    ++waiters_;
    const bool held = mutex_.try_lock_for(kPatienceAtEnd);
    --waiters_;
    return held;
  }
  /// Whether a thread waits in hold(). Polls do not take the lock then.
  bool is_wanted() const { return waiters_.load(std::memory_order_relaxed) != 0; }

 private:
  std::timed_mutex mutex_;
  std::atomic<unsigned> waiters_ = 0;
};

}  // namespace softhca::door
