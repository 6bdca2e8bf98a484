// Memory that is not ours, and was not there when we touched it. Whoever catches the fault
// (door/fault_guard.h) notes it here; who would hand on what was read, or say that something was
// written, looks.
#pragma once

#include <atomic>

namespace softhca::util {

class MemoryFaults {
 public:
  /// There was one since the last clear(): what is said about memory now may be wrong.
  static bool pending() { return pending_.load(std::memory_order_relaxed); }
  /// Safe in a signal handler.
  static void note() { pending_.store(true, std::memory_order_relaxed); }
  static void clear() { pending_.store(false, std::memory_order_relaxed); }

 private:
  static constinit inline std::atomic<bool> pending_ = false;
};

}  // namespace softhca::util
