// Reads a frame's bytes from start to end in portions, whose number a guest may choose. Each
// portion continues where the one before it ended.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <span>

#include "wire/frame.h"

namespace softhca::wire {

class FrameReader {
 public:
  /// Starts at `offset`. The frame must not change while it is read.
  FrameReader(const Frame& frame, std::size_t offset) : frame_(frame), rest_(frame.head()) {
    read(offset, [](std::span<const std::byte>) {});
  }

  /// Calls `visit(std::span<const std::byte>)` for each piece of the next `length` bytes, in order.
  /// @pre that many are left
  template <class Visit>
  void read(std::size_t length, Visit&& visit) {
    while (length != 0) {
      if (rest_.empty()) {
        begin_next_part();
        continue;
      }
      const auto n = std::min(length, rest_.size());
      visit(rest_.first(n));
      rest_ = rest_.subspan(n);
      length -= n;
    }
  }

 private:
  void begin_next_part() {
    const auto segments = frame_.segments();
    assert(next_ <= segments.size());
    rest_ = next_ == segments.size() ? frame_.tail() : segments[next_];
    ++next_;
  }

  const Frame& frame_;
  std::span<const std::byte> rest_;  ///< of the current part
  std::size_t next_ = 0;             ///< index of the next segment; behind them comes the tail
};

}  // namespace softhca::wire
