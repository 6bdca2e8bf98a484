// A packet of the InfiniBand transport as a whole, on whatever link: the headers below the
// transport, BTH, extended headers, payload, pad, ICRC (IBTA 5.2; Annex A16 and A17 for RoCE).
//
// IbPacket::parse gives a packet that makes sense or the reason why not; IbHeader (ib_header.h)
// writes it, and parsing what was written gives the packet again.
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

/// Why a frame is not a packet that makes sense.
enum class PacketError : std::uint8_t {
  kOther,             ///< something else: not an error of anybody
  kFragment,          ///< a fragment of an IPv4 datagram
  kIpOptions,         ///< IPv4 options: IBTA Annex A17 17.3.1.1 wants IHL 5
  kIpChecksum,        ///< IPv4 header checksum
  kMappedAddress,     ///< an IPv4-mapped address in an IPv6 header: RFC 4038 4.2 forbids it on the
                      ///< wire
  kIpLength,          ///< IP length beyond the frame, or too small for what it must hold
  kUdpLength,         ///< UDP length differs from what IP leaves for it
  kGrh,               ///< GRH with another version than 6, or before something else than a BTH
  kGrhLength,         ///< GRH length beyond the frame
  kLinkVersion,       ///< LRH LVer is not 0
  kLinkLength,        ///< LRH length differs from the frame's
  kVcrc,              ///< VCRC does not match
  kPad,               ///< payload and pad are no multiple of 4 bytes
  kShort,             ///< ends inside GRH, BTH, the extended headers, pad or ICRC
  kUnknownOpcode,     ///< no such opcode, or RD
  kTransportVersion,  ///< BTH TVer is not 0
  kIcrc,              ///< ICRC does not match
};
inline constexpr std::size_t kPacketErrorCount = 16;
/// A short sentence for counters and log.
std::string_view to_string(PacketError error);

/// A received packet. The payload stays in the frame: payload_offset and payload_size say where.
struct IbPacket {
  IbAddress address;
  Bth bth;
  ExtHeaders ext;
  std::uint16_t network_offset = 0;  ///< of the IP header or GRH in the frame, or of the BTH
  std::uint32_t payload_offset = 0;
  std::uint16_t payload_size = 0;  ///< without pad and ICRC

  const OpcodeInfo& info() const { return wire::info(bth.opcode); }

  /// Parses the first packet of a train; train.h makes the others from it.
  /// Checks every length, the IPv4 checksum and, unless Frame::Icrc is kDeferred, the CRCs. All
  /// headers must be in the frame's head. Allocates nothing.
  static tl::expected<IbPacket, PacketError> parse(const Frame& frame);
  /// The same for BTH and what follows it, in [begin, end) of the frame: it ends with the ICRC.
  /// `address` and `network_offset` are known. Nothing: the packet makes sense.
  std::optional<PacketError> parse_transport(const Frame& frame, std::size_t begin,
                                             std::size_t end);

  /// The payload's pieces, in order: see Frame::for_each_piece.
  template <class Visit>
  void for_each_payload_piece(const Frame& frame, Visit&& visit) const {
    frame.for_each_piece(payload_offset, payload_size, visit);
  }
};

/// Writes the bytes that a UD receive has before its payload (IBTA 11.4.1.2): the GRH; with RoCEv2
/// the IPv6 header, or 20 bytes of zero and the IPv4 header (Annex A17 17.4.4). `frame` is the one
/// that `packet` was parsed from. False for a local packet, which has nothing to show.
bool emit_ud_grh(const Frame& frame, const IbPacket& packet,
                 std::span<std::byte, GrhLayout::kSize> out);

}  // namespace softhca::wire
