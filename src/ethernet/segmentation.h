// Large send offload (PRM 3.3.2): one TCP or UDP message becomes packets of one maximum segment
// size, each with an updated copy of the headers.
//
// It makes only headers: the caller locates the payload and adds it to the frame.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <tl/expected.hpp>

#include "ethernet/packet_info.h"
#include "wire/frame.h"

namespace softhca::ethernet {

enum class SegmentationError : std::uint8_t {
  kHeaderTooLong,        ///< longer than Frame::kHeadCapacity
  kNotTcpOrUdp,          ///< also a fragment, or an incomplete L4 header
  kHeaderEndsElsewhere,  ///< bytes follow the L4 header
  kMss,                  ///< zero, or a packet of this size exceeds IP's length field
};

/// Changes the headers of a packet that is not the last into those of the packet `count` later,
/// with `payload` bytes in each. @pre `packet` classifies the headers, and has TCP or UDP; count !=
/// 0
void advance_headers(std::span<std::byte> headers, const PacketInfo& packet, unsigned count,
                     std::size_t payload);

class Segmenter {
 public:
  /// The part of the payload that a packet carries.
  struct Part {
    std::size_t offset = 0;
    std::size_t size = 0;
  };

  /// `headers`: exactly Ethernet to TCP or UDP; copied. Yields at least one packet.
  static tl::expected<Segmenter, SegmentationError> create(std::span<const std::byte> headers,
                                                           std::size_t payload_size,
                                                           std::size_t mss);

  bool done() const { return done_; }
  /// Total number of packets.
  std::size_t count() const;
  /// Number of packets, from the next on, that are as long as it and not the last.
  std::size_t middles() const { return done_ ? 0 : (payload_size_ - offset_ - 1) / mss_; }
  /// Skips packets that belong to the train of the last one. @pre count <= middles()
  void skip(std::size_t count) {
    offset_ += count * mss_;
    index_ = static_cast<std::uint16_t>(index_ + count);
  }
  /// Writes the next packet's head and clears the rest of the frame. The caller adds the payload,
  /// then the checksums (insert_l3_checksum, insert_l4_checksum), whose fields have the template's
  /// values. @pre !done()
  Part next(wire::Frame& frame);

 private:
  Segmenter() = default;
  void update_l3(std::span<std::byte> head, std::size_t payload) const;
  void update_tcp(std::span<std::byte> tcp, bool first, bool last) const;

  std::array<std::byte, wire::Frame::kHeadCapacity> headers_;
  std::size_t headers_size_ = 0;
  PacketInfo info_;
  std::size_t payload_size_ = 0;
  std::size_t mss_ = 0;
  std::size_t offset_ = 0;   ///< of the next packet in the payload
  std::uint16_t index_ = 0;  ///< of the next packet, modulo 2^16 like the IPv4 identification
  bool done_ = false;
};

}  // namespace softhca::ethernet
