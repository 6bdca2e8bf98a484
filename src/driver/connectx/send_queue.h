// The send half of a queue pair's memory (PRM 7.4.1.1), or that of an SQ: a ring of 64-byte blocks.
// A request takes as many blocks as it needs, and may wrap around the end.
#pragma once

#include <algorithm>
#include <array>
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

struct KeyChange;

class SendQueue {
 public:
  static constexpr std::size_t kBlock = 64;

  struct Limits {
    unsigned requests = 64;
    unsigned pieces = 4;        ///< per request
    unsigned inline_size = 64;  ///< bytes per request
  };
  /// Blocks that the largest request needs.
  static unsigned blocks_per_request(const Limits& limits);
  /// The same for frames, with headers of `inline_size`.
  static unsigned blocks_per_frame(const Limits& limits);
  /// The same for datagrams.
  static unsigned blocks_per_datagram(const Limits& limits);

  /// `ring`: a power of two of blocks, at most 2^15.
  void attach(std::span<std::byte> ring, const Limits& limits, std::uint32_t number);

  /// Writes the request into the ring, without ringing the doorbell.
  PostStatus post(const SendRequest& request);
  /// The same for the queue of a FrameSender.
  PostStatus post_frame(const FrameRequest& request);
  /// The same for datagrams: a SEND that begins with `request.address` (an AddressVector).
  PostStatus post_datagram(const SendRequest& request);
  /// The same for the queue of a KeyChanger: two blocks each; the id is the key.
  PostStatus post_key_change(const KeyChange& change);
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
  void reset();

 private:
  struct Entry {
    std::uint64_t id;
    std::uint32_t blocks;
  };

  PostStatus check(const SendRequest& request) const;
  static unsigned size_of(const SendRequest& request);
  PostStatus post_frame_closely(const FrameRequest& request);
  void see_frame(const FrameRequest& request, std::span<const std::byte> fixed,
                 std::uint32_t blocks);
  /// Copies to offset `at` of the ring; wraps around at the ring's end.
  void put(std::size_t at, std::span<const std::byte> bytes) {
    const auto first = std::min(bytes.size(), ring_.size() - at);
    util::copy_header(ring_.data() + at, bytes.data(), first);
    if (first != bytes.size()) {
      std::memcpy(ring_.data(), bytes.data() + first, bytes.size() - first);
    }
  }

  std::span<std::byte> ring_;
  Limits limits_;
  std::uint32_t number_ = 0;    ///< QPN
  std::uint32_t mask_ = 0;      ///< blocks - 1
  std::uint32_t head_ = 0;      ///< next free block, not wrapped
  std::uint32_t tail_ = 0;      ///< first block of the oldest incomplete request
  std::uint32_t last_ = 0;      ///< first block of the last request
  std::vector<Entry> entries_;  ///< indexed by first block
  /// The fixed part of the last frame's request, if that request is one block with one piece.
  struct FrameSeen {
    std::size_t header_size = 0;  ///< bytes; 0: no template
    std::size_t data_offset = 0;
    std::uint16_t segment_size = 0;
    bool checksums = false;
    std::array<std::byte, spec::wqe_ctrl_segment::kSize + spec::wqe_eth_segment::kSize> fixed{};
  };
  FrameSeen seen_;
};

}  // namespace softhca::driver::connectx
