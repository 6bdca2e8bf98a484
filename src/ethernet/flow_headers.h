// Flow-cache entry: the headers of a flow, classified once, so that later frames need only a
// comparison.
//
// A frame matches if all its headers have the same length and the same contents, except the fields
// that differ from packet to packet: lengths, identifications and checksums, sequence numbers,
// windows.
//
// A sender finishes frames of a flow by the entry. Such a frame carries the entry's flow id
// (wire/flow.h) while it stays in this process. A receiver that has compared a frame of this flow
// before skips the comparison.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ethernet/header_sum.h"
#include "ethernet/packet_info.h"
#include "util/masked_bytes.h"
#include "wire/frame.h"
#include "wire/ipv6.h"

namespace softhca::ethernet {

class FlowHeaders {
 public:
  /// Headers must end before this byte; only TCP options may follow.
  static constexpr std::size_t kSize = 96;

  /// True if an entry can be made of these headers: TCP or UDP in an unfragmented packet, not too
  /// long, and not RoCEv2, whose packets the transport caches.
  static bool can_be_cached(const PacketInfo& packet);
  /// Stores the headers of a frame. If `tcp_flags`, frames with other TCP flags do not match.
  /// @pre can_be_cached(packet), which is classify(frame)
  void remember(const wire::Frame& frame, const PacketInfo& packet, bool tcp_flags);
  /// Fast path of classify(), with its result; null if the headers do not match. Valid until the
  /// next call.
  const PacketInfo* classify_fast(const wire::Frame& frame);

  /// Bytes of all headers. @pre an entry is stored
  std::size_t size() const { return headers_size_; }
  /// The flow of the entry; 0: no entry.
  wire::FlowId flow() const { return flow_; }

  /// Fast path of insert_l3_checksum() and insert_l4_checksum(), which also sets the flow id. False
  /// if the headers do not match, or need the slow path: the frame's contents are unspecified then.
  /// @pre an entry is stored without TCP flags; the head has size() bytes, followed by one segment,
  /// and there is no tail
  bool finish(wire::Frame& frame) const;

  /// The result of classify_fast() for a frame that finish() has completed, whose flow id matched
  /// this entry before.
  const PacketInfo& classify_finished(const wire::Frame& frame);
  /// The sum that check() returns for such a frame, whose checksums are correct.
  std::uint16_t sum_finished(std::size_t frame_size) const {
    const auto l4_size = frame_size - packet_.l4_offset;
    const auto l4 = sum_right_l4(packet_, l4_size);
    // The sum of a correct IPv4 header is all ones, which changes no other sum but 0.
    if (packet_.l3 == L3Type::kIpv4) return l4;
    const auto behind = packet_.l4_offset - packet_.l3_offset - wire::Ipv6Layout::kSize;
    return fold(std::uint64_t{l4} + l3_sum_ + behind + l4_size);
  }
  bool is_tcp() const { return packet_.l4 == L4Type::kTcp; }

  /// Hash of addresses and ports; flows may collide. @pre the head has an Ethernet header
  static std::size_t hash(const wire::Frame& frame);

 private:
  std::size_t ip_size(const wire::Frame& frame) const;
  void note_packet(const wire::Frame& frame, std::size_t l3_size);

  util::MaskedBytes<kSize> bytes_;
  std::size_t headers_size_ = SIZE_MAX;
  wire::FlowId flow_ = 0;
  std::uint16_t l3_sum_ = 0;  ///< of the compared part of the IP header
  std::uint16_t l4_sum_ = 0;  ///< of the pseudo header without the length, and of the ports
  PacketInfo packet_;
};

}  // namespace softhca::ethernet
