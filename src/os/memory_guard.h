// Memory that a client shares by file descriptor can disappear: the client shortens the file, or
// its file system has no room for a page not written yet. A thread that accesses it gets SIGBUS.
// The guard replaces the memory by zero pages, so that the thread continues, and notifies the
// owner, whose session then ends.
#pragma once

#include <atomic>
#include <cstddef>
#include <optional>

#include "os/event_loop.h"

namespace softhca::os {

/// The client that shared the memory. Outlives its ranges.
struct MemoryOwner {
  std::atomic<bool> lost = false;       ///< a part of its memory has disappeared
  EventLoop::Notice* notice = nullptr;  ///< raised when `lost` is set; null: none
};

/// A mapping of a file, as mmap() made it. Huge pages are mapped, replaced and unmapped whole.
struct MappedFile {
  std::byte* start = nullptr;  ///< on a page boundary, like the end
  std::size_t size = 0;
  std::size_t page = 4096;
};

class MemoryGuard {
 public:
  /// The instance of the process, whose SIGBUS it handles. A SIGBUS outside guarded memory has its
  /// previous effect.
  static MemoryGuard& instance();

  /// Guards `file` until remove(used), where `used` is an address in it. False if kMaxRanges are
  /// guarded already.
  bool add(const MappedFile& file, std::byte* used, MemoryOwner& owner);
  /// The same for a range of small pages that is used from its start.
  bool add(std::byte* start, std::size_t size, MemoryOwner& owner) {
    return add({.start = start, .size = size}, start, owner);
  }
  /// Ends guarding of a file no longer used, and returns it. Empty if it was not guarded. Callable
  /// from any thread.
  std::optional<MappedFile> remove(std::byte* used);

  /// The guarded file that contains `address`. Callable from any thread.
  static std::optional<MappedFile> find(const std::byte* address);

  static constexpr std::size_t kMaxRanges = 65536;

  MemoryGuard(const MemoryGuard&) = delete;
  MemoryGuard& operator=(const MemoryGuard&) = delete;

 private:
  MemoryGuard();
};

}  // namespace softhca::os
