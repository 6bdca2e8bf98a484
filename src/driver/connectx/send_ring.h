// The send half of a queue pair's memory (PRM 7.4.1.1), or that of an SQ: a ring of 64-byte blocks.
// A request takes as many blocks as it needs, and may wrap around the end. SendQueue and
// FrameSendQueue write the requests.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "driver/work.h"
#include "spec/connectx/opcodes.h"
#include "spec/connectx/wqe.h"
#include "util/copy_short.h"

namespace softhca::driver::connectx {

namespace spec = softhca::spec::connectx;

class SendRing {
 public:
  static constexpr std::size_t kBlock = 64;

  struct Limits {
    unsigned requests = 64;
    unsigned pieces = 4;        ///< per request
    unsigned inline_size = 64;  ///< bytes per request
  };

  /// `ring`: a power of two of blocks, at most 2^15. `number`: QPN or SQN.
  void attach(std::span<std::byte> ring, const Limits& limits, std::uint32_t number);

  /// Copies a WQE into the ring, without ringing the doorbell. The caller sets all fields but the
  /// index, the queue's number and the size. `wqe`: whole blocks.
  PostStatus post_wqe(std::uint64_t id, std::span<std::byte> wqe);
  /// The producer index, as written to the doorbell record.
  std::uint16_t producer() const { return static_cast<std::uint16_t>(head_); }
  /// The first 8 bytes of the last request, as written to the doorbell register.
  std::span<const std::byte, 8> last_control() const {
    return std::span<const std::byte, 8>(ring_.data() + std::size_t{last_ & mask_} * kBlock, 8);
  }

  /// Completes the request that begins at block `counter` and all before it: their blocks are free.
  /// Returns its id; nothing if no such request is posted.
  std::optional<std::uint64_t> complete(std::uint16_t counter);
  /// Drops all posted requests.
  void reset() { head_ = tail_ = last_ = 0; }

 protected:
  const Limits& limits() const { return limits_; }
  std::uint32_t number() const { return number_; }
  std::span<std::byte> ring() const { return ring_; }
  bool has_room(std::uint32_t blocks) const { return head_ - tail_ + blocks <= mask_ + 1; }
  /// Offset in the ring of the next request.
  std::size_t place() const { return std::size_t{head_ & mask_} * kBlock; }
  std::size_t wrap(std::size_t at) const { return at & (ring_.size() - 1); }
  /// Copies to offset `at` of the ring; wraps around at the ring's end.
  void put(std::size_t at, std::span<const std::byte> bytes) {
    const auto first = std::min(bytes.size(), ring_.size() - at);
    util::copy_header(ring_.data() + at, bytes.data(), first);
    if (first != bytes.size()) {
      std::memcpy(ring_.data(), bytes.data() + first, bytes.size() - first);
    }
  }
  /// To be called when the request at place() is written.
  void add(std::uint64_t id, std::uint32_t blocks) {
    entries_[head_ & mask_] = {id, blocks};
    last_ = head_;
    head_ += blocks;
  }

 private:
  struct Entry {
    std::uint64_t id;
    std::uint32_t blocks;
  };

  std::span<std::byte> ring_;
  Limits limits_;
  std::uint32_t number_ = 0;
  std::uint32_t mask_ = 0;      ///< blocks - 1
  std::uint32_t head_ = 0;      ///< next free block, not wrapped
  std::uint32_t tail_ = 0;      ///< first block of the oldest incomplete request
  std::uint32_t last_ = 0;      ///< first block of the last request
  std::vector<Entry> entries_;  ///< indexed by first block
};

}  // namespace softhca::driver::connectx
