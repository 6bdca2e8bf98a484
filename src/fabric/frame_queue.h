// Frames waiting for delivery, first in first out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "wire/frame.h"

namespace softhca::fabric {

/// Grows up to a bound, and allocates nothing while it is no fuller than it was before. An entry
/// keeps its place in memory while it is queued, so the front may be looked at while others are
/// pushed.
class FrameQueue {
 public:
  struct Entry {
    wire::Frame frame;
    std::uint32_t port = 0;                  ///< that has sent it
    std::optional<std::uint32_t> loop_mark;  ///< to be returned to its port, with this mark
  };

  explicit FrameQueue(std::size_t frames_max) : frames_max_(frames_max) {}

  /// Copies `frame`. False if the queue is full.
  [[nodiscard]] bool push(const wire::Frame& frame, std::uint32_t port,
                          std::optional<std::uint32_t> loop_mark = std::nullopt);
  /// @pre !empty()
  Entry& front() { return *ring_[head_]; }
  /// @pre !empty()
  void pop();
  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }

  /// Counted from the front. @pre index < size()
  Entry& at(std::size_t index) { return *ring_[slot(index)]; }

 private:
  /// After a burst, entries beyond this number are given back.
  static constexpr std::size_t kEntriesKept = 1024;

  std::size_t slot(std::size_t index) const { return (head_ + index) & (ring_.size() - 1); }
  std::unique_ptr<Entry> take_free();
  void grow();

  const std::size_t frames_max_;
  std::vector<std::unique_ptr<Entry>> ring_;  ///< its size is 0 or a power of two
  std::vector<std::unique_ptr<Entry>> free_;  ///< last in first out: the warmest in cache
  std::size_t head_ = 0;
  std::size_t size_ = 0;
};

}  // namespace softhca::fabric
