// Memory that the objects of a process pin, against its limit of locked memory (`ulimit -l`). Linux
// counts the pages of each object (ib_umem_get). Here nothing is locked.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "uverbs/request.h"

namespace softhca::uverbs {

class LockedMemory {
 public:
  /// The reaction beyond the limit: a line in the log, or also an error as on Linux.
  enum class Beyond : std::uint8_t { kWarning, kRefusal };
  struct Limit {
    std::uint64_t bytes = 0;
    bool binds = true;  ///< the process lacks CAP_IPC_LOCK
  };
  /// RLIMIT_MEMLOCK of this process.
  static Limit of_process();

  explicit LockedMemory(Beyond beyond, std::function<Limit()> limit = of_process)
      : beyond_(beyond), limit_(std::move(limit)) {}

  /// Counts pages. If they are refused: ENOMEM, or EPERM if the process may lock none.
  Errno add(std::uint64_t pages);
  void remove(std::uint64_t pages) { pages_ -= pages; }
  std::uint64_t pages() const { return pages_; }

 private:
  Beyond beyond_;
  std::function<Limit()> limit_;
  std::uint64_t pages_ = 0;
  bool has_warned_ = false;
};

/// The pages of one object. They count until it ends.
class LockedPages {
 public:
  LockedPages() = default;
  LockedPages(LockedPages&& other) noexcept
      : memory_(std::exchange(other.memory_, nullptr)), pages_(other.pages_) {}
  LockedPages& operator=(LockedPages&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(pages_, other.pages_);
    return *this;
  }
  ~LockedPages() {
    if (memory_ != nullptr) memory_->remove(pages_);
  }

  /// Counts [address, address + size) in `memory`, which must live longer; null: nothing counts.
  /// @pre this counts nothing yet
  Errno take(LockedMemory* memory, std::uint64_t address, std::uint64_t size);

 private:
  LockedMemory* memory_ = nullptr;  ///< null: counts nothing
  std::uint64_t pages_ = 0;
};

}  // namespace softhca::uverbs
