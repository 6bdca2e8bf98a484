// What stands in the place of memory that a device uses and the program has taken away or
// protected, while the device is at work. The program's mappings are as they were afterwards.
//
// For the handler of a fault, in the thread that has the engine's lock.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace softhca::door {

/// Pages that are opened for the device, which has them pinned: it does not look at protections.
/// A few at a time: the first one is closed for the next.
class OpenedPages {
 public:
  /// The access becomes possible. False: the mapping does not allow it.
  static bool open(std::uint64_t page, bool to_write);
  static bool any() { return count_.load(std::memory_order_relaxed) != 0; }
  /// All are as the program had them.
  static void close();

 private:
  static constinit inline std::atomic<std::size_t> count_ = 0;  ///< ever, since close()
};

/// Empty pages.
class StandIns {
 public:
  enum class Placed : std::uint8_t { kFailed, kPlaced, kTaken };
  /// Where there was nothing. kTaken: meanwhile there is something of the program's.
  static Placed place(std::uint64_t page);
  /// Where there is a page that cannot be accessed: that one waits elsewhere.
  static Placed replace(std::uint64_t page);
  /// All go, and what has waited returns.
  static void release();
};

}  // namespace softhca::door
