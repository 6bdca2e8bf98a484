// Memory that a client shares by file descriptor can go away under us: it shortens the file, or its
// file system has no room for a page that nobody wrote yet. Whoever touches it then gets SIGBUS.
// The guard puts pages of zeros in its place, so that whoever it was goes on, and tells the owner,
// whose session is at its end.
#pragma once

#include <atomic>
#include <cstddef>

#include "util/event_loop.h"

namespace softhca::vfio_user {

/// Who shared the memory. Outlives its ranges.
struct MemoryOwner {
  std::atomic<bool> lost = false;             ///< a part of its memory has gone
  util::EventLoop::Notice* notice = nullptr;  ///< raised then; null: nobody asks
};

class MemoryGuard {
 public:
  /// Of the process, whose signal it handles. A SIGBUS that is not in guarded memory does what it
  /// did before.
  static MemoryGuard& instance();

  /// Guards [start, start + size), whole pages, until remove(). False if there are kMaxRanges
  /// already.
  bool add(std::byte* start, std::size_t size, MemoryOwner& owner);
  /// Nobody uses the range any more. False if it was not guarded. From any thread.
  bool remove(std::byte* start);

  static constexpr std::size_t kMaxRanges = 65536;

  MemoryGuard(const MemoryGuard&) = delete;
  MemoryGuard& operator=(const MemoryGuard&) = delete;

 private:
  MemoryGuard();
};

}  // namespace softhca::vfio_user
