// Stand-ins for memory that a device uses and the program has unmapped or protected. They exist
// while the device works; afterwards the program's mappings are as before.
//
// To be called in a fault handler, in the thread that has the engine's lock.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace softhca::door {

/// Pages that are made accessible for the device: on hardware they would be pinned, and the device
/// would ignore protections. Only a few are open at a time: the oldest is closed for the next.
class OpenedPages {
 public:
  /// Permits the access. False: the mapping does not allow it.
  static bool open(std::uint64_t page, bool to_write);
  static bool any() { return count_.load(std::memory_order_relaxed) != 0; }
  /// Restores the program's protections.
  static void close();

 private:
  static constinit inline std::atomic<std::size_t> count_ = 0;  ///< opened since close()
};

/// Empty pages. They are pages of a file of the library, by which release() recognizes them: a
/// mapping that another thread has put in their place stays.
class StandIns {
 public:
  /// Creates the file, unless this process has it. Call outside fault handlers. If this fails, or
  /// without /proc, any mapping in the place of a stand-in counts as the stand-in.
  static void prepare();

  enum class Placed : std::uint8_t { kFailed, kPlaced, kTaken };
  /// Maps an empty page where there is no mapping. kTaken: the program has mapped something
  /// meanwhile.
  static Placed place(std::uint64_t page);
  /// Replaces a page that cannot be accessed, and keeps that page elsewhere. kTaken: another thread
  /// has unmapped the page, or has taken its place. The latter can happen only to huge pages, and
  /// before Linux 5.13: release() then moves the page back once its place is free.
  static Placed replace(std::uint64_t page);
  /// Unmaps all of them, and moves replaced pages back.
  static void release();
};

}  // namespace softhca::door
