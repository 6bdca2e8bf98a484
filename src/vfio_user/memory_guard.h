// Memory that a client shares by file descriptor can disappear: the client shortens the file, or
// its file system has no room for a page not written yet. A thread that accesses it gets SIGBUS.
// The guard replaces the memory by zero pages, so that the thread continues, and notifies the
// owner, whose session then ends.
#pragma once

#include <atomic>
#include <cstddef>

#include "util/event_loop.h"

namespace softhca::vfio_user {

/// The client that shared the memory. Outlives its ranges.
struct MemoryOwner {
  std::atomic<bool> lost = false;             ///< a part of its memory has disappeared
  util::EventLoop::Notice* notice = nullptr;  ///< raised when `lost` is set; null: none
};

class MemoryGuard {
 public:
  /// The instance of the process, whose SIGBUS it handles. A SIGBUS outside guarded memory has its
  /// previous effect.
  static MemoryGuard& instance();

  /// Guards [start, start + size), whole pages, until remove(). False if kMaxRanges are guarded
  /// already.
  bool add(std::byte* start, std::size_t size, MemoryOwner& owner);
  /// Ends guarding of a range no longer used. False if it was not guarded. Callable from any
  /// thread.
  bool remove(std::byte* start);

  static constexpr std::size_t kMaxRanges = 65536;

  MemoryGuard(const MemoryGuard&) = delete;
  MemoryGuard& operator=(const MemoryGuard&) = delete;

 private:
  MemoryGuard();
};

}  // namespace softhca::vfio_user
