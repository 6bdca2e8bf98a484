// The contents of a frame, for code that reads them. See frame.h.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "util/hot_assert.h"
#include "wire/flow.h"
#include "wire/payload_checksum.h"
#include "wire/transport_headers.h"

namespace softhca::wire {

class Frame;

/// The kind of link that carries a frame; the frame's first bytes do not identify it.
enum class Link : std::uint8_t {
  kEthernet,    ///< begins with an Ethernet header
  kInfiniband,  ///< begins with an LRH, ends with a VCRC
};

class FrameContents {
 public:
  /// Enough for all headers of any packet of the InfiniBand transport on any link.
  static constexpr std::size_t kHeadCapacity = 192;
  static constexpr std::size_t kSegmentsMax = 32;
  /// Ethernet, a tag, IPv6 and UDP, rounded up, so that a copy takes a few moves.
  static constexpr std::size_t kPathHeadersMax = 80;
  /// Bytes of pad, ICRC and VCRC.
  static constexpr std::size_t kTailCapacity = 12;

  /// State of the CRCs at the end of a packet of the InfiniBand transport: ICRC, and on an
  /// InfiniBand link VCRC.
  enum class Icrc : std::uint8_t {
    kAbsent,    ///< not such a packet, or not known to be one
    kDeferred,  ///< the tail has room for them, and copy_to() computes them; the frame crossed no
                ///< wire, so they need no check
    kPresent,   ///< the frame contains them
  };

  /// Properties of a train. The frame's head is that of the first packet.
  struct Train {
    std::uint16_t packets = 1;        ///< 1: no train
    std::uint16_t payload = 0;        ///< bytes per packet; unused without a train
    std::uint8_t first_has_more = 0;  ///< bytes of headers that only the first packet has
    bool ack_req_at_end = false;      ///< only the last packet's BTH has AckReq
    /// Null: a train of the InfiniBand transport. Otherwise the wire::part() of this train.
    void (*part)(const Frame& train, unsigned index, unsigned count, Frame& out) = nullptr;
    std::uint8_t part_options = 0;  ///< for `part`

    friend bool operator==(const Train&, const Train&) = default;
  };

  /// Bytes on the wire; for a train, those of the first packet, which is the longest.
  std::size_t size() const {
    return shape_.head_size +
           (shape_.train.packets == 1 ? shape_.payload_size : shape_.train.payload) +
           shape_.tail_size;
  }
  const Train& train() const { return shape_.train; }
  unsigned packets() const { return shape_.train.packets; }
  /// Bytes of all packets of a train.
  std::size_t size_of_all() const {
    if (shape_.train.packets == 1) return size();
    return size() + (shape_.train.packets - 1u) * (size() - shape_.train.first_has_more);
  }
  /// The first bytes, contiguous: at least all headers, perhaps more.
  std::span<const std::byte> head() const {
    if (shape_.headers >= Headers::kBytesButChecksum) complete_head();
    return {head_.data(), shape_.head_size};
  }
  std::size_t head_size() const { return shape_.head_size; }
  bool empty() const { return shape_.head_size == 0; }
  /// The first bytes, at least the link's header, complete except for a length.
  std::span<const std::byte> link_header() const {
    constexpr std::size_t kMax = 14;
    return {head_.data(), std::min<std::size_t>(shape_.head_size, kMax)};
  }
  /// True if the packet's headers are stored as values: one test of one bit, for every frame.
  bool has_values() const { return (static_cast<unsigned>(shape_.headers) & 2u) != 0; }
  /// The packet's headers as values; null if it has only bytes. For a train, those of the first
  /// packet.
  const TransportHeaders* headers() const { return has_values() ? &values_ : nullptr; }
  /// @pre headers()
  const PathHeaders& path() const { return path_; }
  /// The flow of the headers: with values, of their path; otherwise as set_flow() says. 0: unknown.
  FlowId flow() const { return path_.flow; }
  /// Bytes of all headers. @pre headers()
  std::size_t headers_size() const { return shape_.headers_size; }
  std::span<const std::span<const std::byte>> segments() const {
    return {segments_.data(), shape_.segment_count};
  }
  std::span<const std::byte> tail() const {
    if (shape_.headers >= Headers::kBytesButChecksum) complete_head();
    return {tail_.data(), shape_.tail_size};
  }
  std::size_t tail_size() const { return shape_.tail_size; }
  Icrc icrc() const { return shape_.icrc; }
  Link link() const { return shape_.link; }
  /// True after set_checksum_made() or defer_checksum().
  bool checksum_made() const { return shape_.checksum_made; }
  /// The checksum whose bytes are not made yet; null: none.
  const PayloadChecksum* deferred_checksum() const {
    return shape_.headers == Headers::kBytesButChecksum ? &checksum_ : nullptr;
  }
  /// True if the frame's own memory holds all of the payload.
  bool owns_segments() const { return shape_.segment_count == 1 && owns(segments_[0]); }
  /// Payload bytes of the packet, or of each packet of a train, without pad. @pre headers()
  std::uint32_t packet_payload() const { return shape_.packet_payload; }
  /// All memory of head(): bytes behind link_header() may be anything.
  std::span<const std::byte, kHeadCapacity> head_room() const { return head_; }

  /// The bytes [offset, offset + length) if all of them are in the head or in the first segment, as
  /// is most payload; else null.
  [[gnu::always_inline]] const std::byte* one_piece(std::size_t offset, std::size_t length) const {
    if (offset + length <= shape_.head_size) {
      return (offset < shape_.headers_size ? head().data() : head_.data()) + offset;
    }
    const auto skip = offset - shape_.head_size;
    const bool fits = offset >= shape_.head_size && shape_.segment_count != 0 &&
                      skip + length <= segments_[0].size();
    return fits ? segments_[0].data() + skip : nullptr;
  }

  /// Copies [offset, offset + out.size()) unchanged.
  /// @pre offset + out.size() <= size()
  void copy_range(std::size_t offset, std::span<std::byte> out) const;

  /// Calls `visit(std::span<const std::byte>)` for each piece of [offset, offset + length), in
  /// order.
  /// @pre offset + length <= size()
  template <class Visit>
  void for_each_piece(std::size_t offset, std::size_t length, Visit&& visit) const {
    SOFTHCA_HOT_ASSERT(offset + length <=
                       shape_.head_size + shape_.payload_size + shape_.tail_size);
    const auto piece = [&](std::span<const std::byte> bytes) {
      if (offset >= bytes.size()) {
        offset -= bytes.size();
        return;
      }
      const auto n = std::min(length, bytes.size() - offset);
      if (n != 0) visit(bytes.subspan(offset, n));
      length -= n;
      offset = 0;
    };
    piece(head());
    for (const auto& segment : segments()) {
      if (length == 0) return;
      piece(segment);
    }
    if (length != 0) piece(tail());
  }

 protected:
  // Not defaulted: FrameContents() would then clear the arrays.
  FrameContents() {}
  ~FrameContents() = default;
  FrameContents(const FrameContents&) = delete;
  FrameContents& operator=(const FrameContents&) = delete;

  void complete_head() const;
  bool owns(std::span<const std::byte> segment) const;

  /// Form of the headers: bytes, values of the InfiniBand transport, or both. In the last two forms
  /// some or all of the bytes are not made yet. The bit of kBoth: has values.
  enum class Headers : std::uint8_t { kBytes = 0, kBoth = 2, kBytesButChecksum = 4, kValues = 6 };

  /// Everything except bytes, in one struct, to be copied together.
  struct Shape {
    std::size_t payload_size = 0;
    std::uint16_t head_size = 0;
    std::uint8_t tail_size = 0;
    std::uint8_t segment_count = 0;
    Icrc icrc = Icrc::kAbsent;
    Link link = Link::kEthernet;
    Headers headers = Headers::kBytes;
    std::uint8_t headers_size = 0;     ///< bytes of the head that may not be made yet
    std::uint16_t packet_payload = 0;  ///< with headers as values: payload bytes per packet
    bool checksum_made = false;
    Train train = {};
  };

  // mutable, because head() makes bytes from values.
  mutable std::array<std::byte, kHeadCapacity> head_;
  mutable std::array<std::byte, kTailCapacity> tail_;
  mutable Shape shape_;
  /// With headers as values, the path whose headers are at the start of the head, except lengths.
  /// The flow is valid with any headers.
  PathHeaders path_;
  TransportHeaders values_;   ///< used with headers as values
  PayloadChecksum checksum_;  ///< used with kBytesButChecksum
  std::array<std::span<const std::byte>, kSegmentsMax> segments_;
  std::vector<std::byte> owned_;

 private:
  void write_headers() const;
};

}  // namespace softhca::wire
