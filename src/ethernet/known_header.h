// The headers of a flow that were taken apart once: of the frames that follow most is known.
//
// A frame has known headers if all of them are as long and say the same, but for what differs from
// packet to packet: lengths, identifications and checksums, sequence numbers, windows.
//
// Who sends frames of a flow finishes them by what is known. Such a frame carries the number of its
// headers as long as it stays in this process: who has met that number before need not compare.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ethernet/header_sum.h"
#include "ethernet/packet_info.h"
#include "util/masked_bytes.h"
#include "wire/frame.h"
#include "wire/ipv6.h"

namespace softhca::ethernet {

class KnownHeader {
 public:
  /// Headers must end before this byte, but for TCP options.
  static constexpr std::size_t kSize = 96;

  /// Whether headers of this kind can be known: TCP or UDP in a whole packet, not too long, and not
  /// RoCEv2, whose packets the transport knows.
  static bool can_be_known(const PacketInfo& packet);
  /// @pre can_be_known(packet), which is classify(frame). `tcp_flags`: they count as well, and a
  /// frame with others is not known.
  void remember(const wire::Frame& frame, const PacketInfo& packet, bool tcp_flags);
  /// What classify(frame) would say; null if its headers are not these. Valid until the next call.
  const PacketInfo* parse(const wire::Frame& frame);

  /// Bytes of all headers. @pre one is remembered
  std::size_t size() const { return headers_size_; }
  /// Of all headers that this process ever remembered; 0: none is.
  std::uint64_t number() const { return number_; }

  /// Puts both checksums into a frame that has been gathered, and this number. False if its headers
  /// are not these, or something about it is unusual: what has become of it then is to be
  /// forgotten. @pre one is remembered, of which TCP flags do not count; the head has size() bytes,
  /// behind it is one segment, and no tail
  bool finish(wire::Frame& frame) const;

  /// What parse() says of a frame that finish() has left with a number that met one of these
  /// headers before.
  const PacketInfo& parse_finished(const wire::Frame& frame);
  /// The sum that check() says of such a frame, whose checksums are right.
  std::uint16_t sum_finished(std::size_t frame_size) const {
    const auto l4_size = frame_size - packet_.l4_offset;
    const auto l4 = sum_right_l4(packet_, l4_size);
    // The sum of a right IPv4 header is all ones, which change no other sum but 0.
    if (packet_.l3 == L3Type::kIpv4) return l4;
    const auto behind = packet_.l4_offset - packet_.l3_offset - wire::Ipv6Layout::kSize;
    return fold(std::uint64_t{l4} + l3_sum_ + behind + l4_size);
  }
  bool is_tcp() const { return packet_.l4 == L4Type::kTcp; }

  /// Differs from flow to flow, mostly. @pre the head has an Ethernet header
  static std::size_t hash(const wire::Frame& frame);

 private:
  std::size_t ip_size(const wire::Frame& frame) const;
  void note_packet(const wire::Frame& frame, std::size_t l3_size);

  util::MaskedBytes<kSize> bytes_;
  std::size_t headers_size_ = SIZE_MAX;
  std::uint64_t number_ = 0;
  std::uint16_t l3_sum_ = 0;  ///< of what counts in the IP header
  std::uint16_t l4_sum_ = 0;  ///< of the pseudo header, but for the length, and of the ports
  PacketInfo packet_;
};

}  // namespace softhca::ethernet
