// One frame in transit: its own header bytes, and references to payload memory.
//
// Inside a process a payload is copied once, from the sender's registered memory to the receiver's.
// A frame therefore has references to its payload, not the payload. Code that puts the frame on a
// real wire or into a file makes its bytes by copy_to().
//
// The bytes of a frame, in order: head, segments, tail. No FCS.
//
// Headers of a packet that one engine passes to another are stored as values; head() makes their
// bytes on demand.
//
// A frame may be a train: it represents several packets of one message, like the input of a NIC's
// segmentation offload. See train.h.
//
// FrameContents has the functions that read a frame, and Frame those that build it.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

#include "util/hot_assert.h"
#include "wire/flow.h"
#include "wire/frame_contents.h"
#include "wire/payload_checksum.h"
#include "wire/transport_headers.h"

namespace softhca::wire {

class Frame : public FrameContents {
 public:
  void clear() {
    shape_ = {};
    path_.flow = 0;
  }
  /// The head's memory, to be written by a codec; its length becomes `size`.
  std::span<std::byte> resize_head(std::size_t size) {
    SOFTHCA_HOT_ASSERT(size <= kHeadCapacity && shape_.headers == Headers::kBytes);
    shape_.head_size = static_cast<std::uint16_t>(size);
    path_.flow = 0;
    return {head_.data(), size};
  }
  /// Starts a new frame: returns its head of `head_size` bytes, to be written; `payload` follows
  /// it, as by add_segment(). Earlier contents are dropped. @pre !payload.empty()
  std::span<std::byte> begin(std::size_t head_size, std::span<const std::byte> payload) {
    SOFTHCA_HOT_ASSERT(head_size <= kHeadCapacity && !payload.empty());
    shape_ = {};
    shape_.head_size = static_cast<std::uint16_t>(head_size);
    shape_.payload_size = payload.size();
    shape_.segment_count = 1;
    segments_[0] = payload;
    path_.flow = 0;
    return {head_.data(), head_size};
  }
  /// The head as it is, writable: headers stored as values become bytes.
  std::span<std::byte> mutable_head() {
    if (shape_.headers >= Headers::kBytesButChecksum) complete_head();
    shape_.headers = Headers::kBytes;
    path_.flow = 0;
    return {head_.data(), shape_.head_size};
  }
  /// Appends `size` bytes behind the headers.
  std::span<std::byte> extend_head(std::size_t size) {
    SOFTHCA_HOT_ASSERT(shape_.head_size + size <= kHeadCapacity);
    const auto begin = shape_.head_size;
    shape_.head_size = static_cast<std::uint16_t>(begin + size);
    return {head_.data() + begin, size};
  }
  /// The head begins with the bytes of `path`, followed by transport headers that the caller sets
  /// as values. `head_size`, `tail_size`: bytes of all headers, and of pad and CRCs.
  /// `packet_payload`: payload bytes of the packet, or of each packet of a train. Replaces all
  /// earlier contents.
  TransportHeaders& defer_headers(const std::array<std::byte, kPathHeadersMax>& bytes,
                                  const PathHeaders& path, Link link, std::size_t head_size,
                                  std::size_t packet_payload, std::size_t tail_size) {
    SOFTHCA_HOT_ASSERT(head_size <= kHeadCapacity && tail_size <= kTailCapacity);
    if (path_.flow != path.flow) {
      // Copies the maximum, which takes fewer instructions: bytes behind the path's are written
      // later.
      std::memcpy(head_.data(), bytes.data(), kPathHeadersMax);
      path_ = path;
    }
    static constexpr Shape kShape{.icrc = Icrc::kDeferred, .headers = Headers::kValues};
    shape_ = kShape;
    shape_.head_size = static_cast<std::uint16_t>(head_size);
    shape_.tail_size = static_cast<std::uint8_t>(tail_size);
    shape_.link = link;
    shape_.headers_size = static_cast<std::uint8_t>(head_size);
    shape_.packet_payload = static_cast<std::uint16_t>(packet_payload);
    return values_;
  }
  std::span<std::byte> resize_tail(std::size_t size) {
    SOFTHCA_HOT_ASSERT(size <= kTailCapacity);
    shape_.tail_size = static_cast<std::uint8_t>(size);
    return {tail_.data(), size};
  }
  /// Refers to `bytes`, which must stay valid until the fabric has delivered the frame. False if
  /// there is no room for another segment: then gather into the frame's own memory
  /// (own_payload_so_far).
  [[nodiscard]] bool add_segment(std::span<const std::byte> bytes) {
    if (bytes.empty()) return true;
    if (shape_.segment_count != 0) {
      auto& last = segments_[shape_.segment_count - 1];
      // Extends the last segment if `bytes` continues it in memory, but not beyond the frame's own
      // memory: a copy must be able to distinguish owned segments from others.
      const std::byte* const end = last.data() + last.size();
      if (end == bytes.data() && end != owned_.data() + owned_.size()) {
        last = {last.data(), last.size() + bytes.size()};
        shape_.payload_size += bytes.size();
        return true;
      }
    }
    if (shape_.segment_count == kSegmentsMax) return false;
    segments_[shape_.segment_count++] = bytes;
    shape_.payload_size += bytes.size();
    return true;
  }
  /// Replaces the segments by `size` bytes of the frame's own memory, which the caller fills.
  std::span<std::byte> own_payload(std::size_t size) {
    owned_.resize(size);
    shape_.segment_count = 0;
    shape_.payload_size = 0;
    if (size != 0) {
      segments_[0] = owned_;
      shape_.segment_count = 1;
      shape_.payload_size = size;
    }
    return owned_;
  }
  /// The same, but keeps the segments so far, as copies. Returns the bytes behind them, which the
  /// caller fills. @pre the frame owns no segment yet
  std::span<std::byte> own_payload_so_far(std::size_t size);
  /// Copies all segments into the frame's own memory, so that the frame may outlive theirs. Returns
  /// the number of bytes copied; 0 if it owns them already.
  std::size_t own_segments();
  void set_icrc(Icrc icrc) { shape_.icrc = icrc; }
  /// Head and tail are those of the first packet; the segments are the payload of all packets.
  void set_train(const Train& train) { shape_.train = train; }
  void set_link(Link link) { shape_.link = link; }
  /// A checksum in the headers covers the payload, was computed here, and the frame is still in
  /// this process: a receiver need not read the payload to check it.
  void set_checksum_made() { shape_.checksum_made = true; }
  /// The same, but the checksum is computed later: by head(), or by the code that copies the
  /// payload.
  /// @pre the headers are bytes; one segment, and no tail
  void defer_checksum(const PayloadChecksum& checksum) {
    SOFTHCA_HOT_ASSERT(shape_.headers == Headers::kBytes && shape_.segment_count == 1);
    shape_.headers = Headers::kBytesButChecksum;
    shape_.headers_size = static_cast<std::uint8_t>(shape_.head_size);
    shape_.checksum_made = true;
    checksum_ = checksum;
  }
  /// The headers, which are bytes, are those of this flow, and complete. Cleared when the head
  /// becomes writable.
  void set_flow(FlowId flow) {
    SOFTHCA_HOT_ASSERT(!has_values());
    path_.flow = flow;
  }
  /// Computes deferred CRCs, for a receiver that needs bytes instead of a packet.
  void compute_icrc();
  /// Writes the frame's bytes as a wire carries them, including deferred CRCs.
  /// @pre out.size() >= size(), and this is no train
  void copy_to(std::span<std::byte> out) const;

  Frame() = default;
  /// The copy refers to the same memory; memory that the frame owns is copied. Allocates only if
  /// the frame owns more than the target has room for.
  Frame(const Frame& other) : FrameContents() { *this = other; }
  Frame& operator=(const Frame& other);
  /// Leaves `other` cleared.
  Frame(Frame&& other) noexcept { *this = std::move(other); }
  Frame& operator=(Frame&& other) noexcept;

  /// Makes a frame from received bytes: the first kHeadCapacity become the head, the rest one
  /// segment that refers to `bytes`.
  static Frame from_bytes(std::span<const std::byte> bytes, Link link = Link::kEthernet) {
    Frame frame;
    frame.set_link(link);
    const auto head = std::min(bytes.size(), kHeadCapacity);
    std::copy_n(bytes.begin(), head, frame.resize_head(head).begin());
    (void)frame.add_segment(bytes.subspan(head));
    return frame;
  }

 private:
  void copy_parts(const Frame& other);
  void put_crcs(std::byte* end) const;
};

}  // namespace softhca::wire
