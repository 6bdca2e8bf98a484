// One frame on its way: header bytes of its own, and references to payload memory.
//
// Inside a process a payload is copied once, from the sender's registered memory to the receiver's;
// so a frame carries where the payload lies, not the payload. Whoever puts the frame on a real wire
// or in a file makes bytes of it with copy_to().
//
// The bytes of a frame, in order: head, segments, tail. No FCS.
//
// A frame may be a train: it stands for several packets of one message, as what a NIC with
// segmentation offload is given. See train.h.
#pragma once

#include <algorithm>
#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

namespace softhca::wire {

/// What carries a frame; its first bytes do not tell.
enum class Link : std::uint8_t {
  kEthernet,    ///< begins with an Ethernet header
  kInfiniband,  ///< begins with an LRH, ends with a VCRC
};

class Frame {
 public:
  /// Enough for all headers of any packet of the InfiniBand transport, on any link.
  static constexpr std::size_t kHeadCapacity = 192;
  static constexpr std::size_t kSegmentsMax = 32;
  /// Pad bytes, ICRC and VCRC.
  static constexpr std::size_t kTailCapacity = 12;

  /// Where the CRCs at the end of a packet of the InfiniBand transport stand: ICRC, and on an
  /// InfiniBand link VCRC.
  enum class Icrc : std::uint8_t {
    kAbsent,    ///< not such a packet, or not known to be one
    kDeferred,  ///< the tail has room for them; copy_to() computes them. Never left this process,
                ///< so nobody needs to check them
    kPresent,   ///< the bytes hold them
  };

  // Building -----------------------------------------------------------------------------------

  void clear() { shape_ = {}; }
  /// The head's memory, to be written by a codec; `size` becomes its length.
  std::span<std::byte> resize_head(std::size_t size) {
    assert(size <= kHeadCapacity);
    shape_.head_size = static_cast<std::uint16_t>(size);
    return {head_.data(), size};
  }
  std::span<std::byte> resize_tail(std::size_t size) {
    assert(size <= kTailCapacity);
    shape_.tail_size = static_cast<std::uint8_t>(size);
    return {tail_.data(), size};
  }
  /// Refers to `bytes`, which must stay valid until the fabric has delivered the frame. False if
  /// there is no room for one more segment: gather then into memory of the frame's own
  /// (own_payload).
  [[nodiscard]] bool add_segment(std::span<const std::byte> bytes) {
    if (bytes.empty()) return true;
    if (shape_.segment_count != 0) {
      auto& last = segments_[shape_.segment_count - 1];
      // Extend what continues in memory, but not beyond what the frame owns: a copy must be able
      // to tell owned segments from others.
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
  /// Replaces the segments by `size` bytes of the frame's own memory, to be filled by the caller.
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
  /// Copies all that the segments refer to into memory of the frame's own, so that the frame may
  /// outlive it. Returns how many bytes these were; 0 if it owns them already.
  std::size_t own_segments();
  void set_icrc(Icrc icrc) { shape_.icrc = icrc; }
  /// What the packets of a train have in common besides its head, which is the first one's.
  struct Train {
    std::uint16_t packets = 1;        ///< 1: no train
    std::uint16_t payload = 0;        ///< bytes in each of them; not used if it is no train
    std::uint8_t first_has_more = 0;  ///< bytes of headers that only the first has
    bool ack_req_at_end = false;      ///< the last one's BTH has AckReq, and only it
    /// Null: a train of the InfiniBand transport. Else wire::part() for this one.
    void (*part)(const Frame& train, unsigned index, unsigned count, Frame& out) = nullptr;
    std::uint8_t part_options = 0;  ///< for `part`

    friend bool operator==(const Train&, const Train&) = default;
  };
  /// The head and the tail are those of the first packet, the segments the payload of all.
  void set_train(const Train& train) { shape_.train = train; }
  /// Where the BTH begins, from who wrote the headers, so that nobody has to look for it.
  void set_transport_offset(std::size_t offset) {
    shape_.transport_offset = static_cast<std::uint8_t>(offset);
  }
  void set_link(Link link) { shape_.link = link; }
  /// The checksum of TCP or UDP was made here, and the frame is still in this process, so that
  /// nobody needs to read the payload to see that it is right.
  void set_l4_checksum_made() { shape_.l4_checksum_made = true; }
  /// Makes deferred CRCs present, for a receiver that wants the bytes and not the packet.
  void compute_icrc();

  Frame() = default;
  /// The copy refers to the same memory; what the frame owns is copied. Allocates only if
  /// the frame owns more than the target has room for.
  Frame(const Frame& other) { *this = other; }
  Frame& operator=(const Frame& other);
  /// Leaves `other` cleared.
  Frame(Frame&& other) noexcept { *this = std::move(other); }
  Frame& operator=(Frame&& other) noexcept;

  /// A frame from received bytes: the first kHeadCapacity become the head, the rest one segment
  /// that refers to `bytes`.
  static Frame from_bytes(std::span<const std::byte> bytes, Link link = Link::kEthernet) {
    Frame frame;
    frame.set_link(link);
    const auto head = std::min(bytes.size(), kHeadCapacity);
    std::copy_n(bytes.begin(), head, frame.resize_head(head).begin());
    (void)frame.add_segment(bytes.subspan(head));
    return frame;
  }

  // Reading ------------------------------------------------------------------------------------

  /// Of a train: of its first packet; the others are no longer.
  std::size_t size() const {
    return shape_.head_size +
           (shape_.train.packets == 1 ? shape_.payload_size : shape_.train.payload) +
           shape_.tail_size;
  }
  const Train& train() const { return shape_.train; }
  unsigned packets() const { return shape_.train.packets; }
  /// Bytes of all packets of a train together.
  std::size_t size_of_all() const {
    if (shape_.train.packets == 1) return size();
    return size() + (shape_.train.packets - 1u) * (size() - shape_.train.first_has_more);
  }
  /// The first bytes in one piece: at least all headers, perhaps more.
  std::span<const std::byte> head() const { return {head_.data(), shape_.head_size}; }
  std::span<std::byte> head() { return {head_.data(), shape_.head_size}; }
  std::span<const std::span<const std::byte>> segments() const {
    return {segments_.data(), shape_.segment_count};
  }
  std::span<const std::byte> tail() const { return {tail_.data(), shape_.tail_size}; }
  Icrc icrc() const { return shape_.icrc; }
  Link link() const { return shape_.link; }
  bool l4_checksum_made() const { return shape_.l4_checksum_made; }
  /// Whether the payload lies in memory of the frame's own, and none of it elsewhere.
  bool owns_segments() const { return shape_.segment_count == 1 && owns(segments_[0]); }
  /// 0: not known.
  std::size_t transport_offset() const { return shape_.transport_offset; }
  /// The memory of head(), all of it: what is behind the head may hold anything.
  std::span<const std::byte, kHeadCapacity> head_room() const { return head_; }

  /// [offset, offset + length) if all of it lies in the head or is of the first segment, as most
  /// payload is; null otherwise.
  const std::byte* one_piece(std::size_t offset, std::size_t length) const {
    if (offset + length <= shape_.head_size) return head_.data() + offset;
    const auto skip = offset - shape_.head_size;
    const bool fits = offset >= shape_.head_size && shape_.segment_count != 0 &&
                      skip + length <= segments_[0].size();
    return fits ? segments_[0].data() + skip : nullptr;
  }

  /// Writes the frame's bytes as a wire carries them, with deferred CRCs computed.
  /// @pre out.size() >= size(), and this is no train
  void copy_to(std::span<std::byte> out) const;

  /// Copies [offset, offset + out.size()) as it stands.
  /// @pre offset + out.size() <= size()
  void copy_range(std::size_t offset, std::span<std::byte> out) const;

  /// Calls `visit(std::span<const std::byte>)` for each piece of [offset, offset + length), in
  /// order.
  /// @pre offset + length <= size()
  template <class Visit>
  void for_each_piece(std::size_t offset, std::size_t length, Visit&& visit) const {
    assert(offset + length <= shape_.head_size + shape_.payload_size + shape_.tail_size);
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

 private:
  void copy_parts(const Frame& other);
  void put_crcs(std::byte* end) const;
  bool owns(std::span<const std::byte> segment) const;

  /// All that is not bytes, in one piece to be copied.
  struct Shape {
    std::size_t payload_size = 0;
    std::uint16_t head_size = 0;
    std::uint8_t tail_size = 0;
    std::uint8_t segment_count = 0;
    Icrc icrc = Icrc::kAbsent;
    Link link = Link::kEthernet;
    std::uint8_t transport_offset = 0;
    bool l4_checksum_made = false;
    Train train;
  };

  std::array<std::byte, kHeadCapacity> head_;
  std::array<std::byte, kTailCapacity> tail_;
  Shape shape_;
  std::array<std::span<const std::byte>, kSegmentsMax> segments_;
  std::vector<std::byte> owned_;
};

}  // namespace softhca::wire
