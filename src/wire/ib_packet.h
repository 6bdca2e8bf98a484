// A complete packet of the InfiniBand transport on any link: the headers below the transport, BTH,
// extended headers, payload, pad, ICRC (IBTA 5.2; Annex A16 and A17 for RoCE).
//
// IbPacket::parse returns a valid packet, or the reason why it is not valid. IbHeader (ib_header.h)
// writes packets; parsing a written packet returns the same packet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <tl/expected.hpp>

#include "wire/frame.h"
#include "wire/grh.h"
#include "wire/ib_address.h"
#include "wire/opcode.h"
#include "wire/transport_headers.h"

namespace softhca::wire {

/// Why a frame is not a valid packet.
enum class PacketError : std::uint8_t {
  kOther,             ///< another protocol: not an error
  kFragment,          ///< a fragment of an IPv4 datagram
  kIpOptions,         ///< IPv4 options: IBTA Annex A17 17.3.1.1 requires IHL 5
  kIpChecksum,        ///< wrong IPv4 header checksum
  kMappedAddress,     ///< an IPv4-mapped address in an IPv6 header: RFC 4038 4.2 forbids it on the
                      ///< wire
  kIpLength,          ///< IP length beyond the frame, or too small for its contents
  kUdpLength,         ///< UDP length differs from the rest of the IP packet
  kGrh,               ///< GRH with a version other than 6, or not followed by a BTH
  kGrhLength,         ///< GRH length beyond the frame
  kLinkVersion,       ///< LRH LVer is not 0
  kLinkLength,        ///< LRH length differs from the frame's length
  kVcrc,              ///< VCRC does not match
  kPad,               ///< size of payload and pad is no multiple of 4 bytes
  kShort,             ///< ends inside GRH, BTH, the extended headers, pad or ICRC
  kUnknownOpcode,     ///< no such opcode, or RD
  kTransportVersion,  ///< BTH TVer is not 0
  kIcrc,              ///< ICRC does not match
};
inline constexpr auto kPacketErrorCount = static_cast<std::size_t>(PacketError::kIcrc) + 1;
/// A short text for counters and log.
std::string_view to_string(PacketError error);

/// A received packet. The payload stays in the frame, at payload_offset, with payload_size bytes.
struct IbPacket {
  IbAddress address;
  Bth bth;
  ExtHeaders ext;
  std::uint16_t network_offset = 0;  ///< of the IP header, the GRH or, if there is neither, the BTH
  std::uint32_t payload_offset = 0;
  std::uint16_t payload_size = 0;  ///< without pad and ICRC

  const OpcodeInfo& info() const { return wire::info(bth.opcode); }

  /// Parses a packet; for a train the first one, from which train.h makes the others. Checks every
  /// length, the IPv4 checksum and, unless Frame::Icrc is kDeferred, the CRCs. All headers must be
  /// in the frame's head. Allocates nothing.
  static tl::expected<IbPacket, PacketError> parse(const Frame& frame);
  /// The same for the bytes [begin, end) of the frame, from the BTH to the end of the ICRC.
  /// `address` and `network_offset` are already set. Returns nothing if the packet is valid.
  std::optional<PacketError> parse_transport(const Frame& frame, std::size_t begin,
                                             std::size_t end);

  /// The payload's pieces, in order: see Frame::for_each_piece.
  template <class Visit>
  void for_each_payload_piece(const Frame& frame, Visit&& visit) const {
    frame.for_each_piece(payload_offset, payload_size, visit);
  }
};

/// Writes the bytes in front of the payload of a UD receive (IBTA 11.4.1.2): the GRH; with RoCEv2
/// the IPv6 header, or 20 zero bytes and the IPv4 header (Annex A17 17.4.4). `packet` was parsed
/// from `frame`. False for a local packet, which has no such header.
bool emit_ud_grh(const Frame& frame, const IbPacket& packet,
                 std::span<std::byte, GrhLayout::kSize> out);

}  // namespace softhca::wire
