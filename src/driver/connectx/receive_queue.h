// The receive half of a queue pair's memory (PRM 7.4.1.2): a ring of entries of equal size.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "driver/work.h"

namespace softhca::driver::connectx {

class ReceiveQueue {
 public:
  struct Limits {
    unsigned requests = 64;  ///< 0: no receive queue
    unsigned pieces = 1;     ///< per request
  };

  /// `ring`: a power of two of entries, at most 2^15, each of `stride` bytes; or empty.
  void attach(std::span<std::byte> ring, std::size_t stride, const Limits& limits);

  PostStatus post(const ReceiveRequest& request);
  std::uint16_t producer() const { return static_cast<std::uint16_t>(head_); }

  /// Completes the request in entry `counter` and all before it. Returns its id; nothing if no such
  /// request is posted.
  std::optional<std::uint64_t> complete(std::uint16_t counter) {
    const auto index = tail_ + static_cast<std::uint16_t>(counter - tail_);
    if (head_ - index - 1 >= ids_.size()) return std::nullopt;
    tail_ = index + 1;
    return ids_[index & mask_];
  }
  void reset() { head_ = tail_ = 0; }

 private:
  std::span<std::byte> ring_;
  std::size_t stride_ = 0;
  Limits limits_;
  std::uint32_t mask_ = 0;
  std::uint32_t head_ = 0;
  std::uint32_t tail_ = 0;
  std::vector<std::uint64_t> ids_;  ///< indexed by entry
};

}  // namespace softhca::driver::connectx
