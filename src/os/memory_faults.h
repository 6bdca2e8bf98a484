// Faults on memory of the program that turned out to be unmapped. The fault handler
// (door/memory/fault_guard.h) notes them here. Code checks it before it passes on bytes read, or
// reports that bytes were written.
#pragma once

#include <atomic>

namespace softhca::os {

class MemoryFaults {
 public:
  /// True if a fault occurred since the last clear(): statements about memory may be wrong.
  static bool pending() { return pending_.load(std::memory_order_relaxed); }
  /// Safe in a signal handler.
  static void note() { pending_.store(true, std::memory_order_relaxed); }
  static void clear() { pending_.store(false, std::memory_order_relaxed); }

 private:
  static constinit inline std::atomic<bool> pending_ = false;
};

}  // namespace softhca::os
