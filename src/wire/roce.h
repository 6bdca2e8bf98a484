// A RoCEv2 packet as a whole (IBTA Annex A17): Ethernet, VLAN, IPv4 or IPv6, UDP, BTH, extended
// headers, payload, pad, ICRC.
//
// A view reads bytes, a value stands for a packet that made sense: RocePacket::parse gives the
// value or the reason why not, RoceHeader writes it, and parsing what was written gives the value
// again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <tl/expected.hpp>

#include "wire/aeth.h"
#include "wire/atomic_eth.h"
#include "wire/bth.h"
#include "wire/deth.h"
#include "wire/ethernet.h"
#include "wire/frame.h"
#include "wire/gid.h"
#include "wire/grh.h"
#include "wire/icrc.h"
#include "wire/ieth.h"
#include "wire/immdt.h"
#include "wire/ipv6.h"
#include "wire/mac_address.h"
#include "wire/opcode.h"
#include "wire/reth.h"
#include "wire/udp.h"
#include "wire/vlan.h"
#include "wire/xrceth.h"

namespace softhca::wire {

inline constexpr std::uint16_t kRoceUdpPort = spec::infiniband::kRoceV2UdpPort;

/// Everything below the transport: who sends to whom, and how the network shall treat it.
struct RoceAddress {
  MacAddress destination_mac;
  MacAddress source_mac;
  std::optional<std::uint16_t> vlan_tci;
  /// Both are IPv4-mapped (then the packet is IPv4) or neither is.
  Gid source_gid;
  Gid destination_gid;
  std::uint8_t traffic_class = 0;  ///< DSCP (7:2) and ECN (1:0)
  std::uint32_t flow_label = 0;    ///< IPv6 only, 20 bits
  std::uint8_t hop_limit = 64;
  std::uint16_t udp_source_port = 0xc000;  ///< the path's entropy

  bool is_ipv4() const { return destination_gid.is_ipv4(); }
  friend bool operator==(const RoceAddress&, const RoceAddress&) = default;
};

/// The extended headers. Which of them mean something follows from the opcode: OpcodeInfo::has().
struct ExtHeaders {
  Deth deth;
  XrcEth xrceth;
  Reth reth;
  AtomicEth atomic;
  Aeth aeth;
  AtomicAckEth atomic_ack;
  ImmDt immdt;
  Ieth ieth;

  friend bool operator==(const ExtHeaders&, const ExtHeaders&) = default;
};

/// Why a frame is not a RoCEv2 packet that makes sense.
enum class RoceError : std::uint8_t {
  kNotRoce,           ///< something else: not an error of anybody
  kFragment,          ///< a fragment of an IPv4 datagram
  kIpOptions,         ///< IPv4 options: IBTA Annex A17 17.3.1.1 wants IHL 5
  kIpChecksum,        ///< IPv4 header checksum
  kMappedAddress,     ///< an IPv4-mapped address in an IPv6 header: RFC 4038 4.2 forbids it on the
                      ///< wire
  kIpLength,          ///< IP length beyond the frame, or too small for what it must hold
  kUdpLength,         ///< UDP length differs from what IP leaves for it
  kShort,             ///< ends inside BTH, the extended headers, pad or ICRC
  kUnknownOpcode,     ///< no such opcode, or RD
  kTransportVersion,  ///< BTH TVer is not 0
  kIcrc,              ///< ICRC does not match
};
inline constexpr std::size_t kRoceErrorCount = 11;
/// A short sentence for counters and log.
std::string_view to_string(RoceError error);

/// A received packet. The payload stays in the frame: payload_offset and payload_size say where.
struct RocePacket {
  RoceAddress address;
  Bth bth;
  ExtHeaders ext;
  std::uint16_t network_offset = 0;  ///< of the IP header in the frame
  std::uint16_t payload_offset = 0;
  std::uint16_t payload_size = 0;  ///< without pad and ICRC

  const OpcodeInfo& info() const { return wire::info(bth.opcode); }

  /// Checks every length, the IPv4 checksum and, unless Frame::Icrc is kDeferred, the ICRC. All
  /// headers must be in the frame's head. Allocates nothing.
  static tl::expected<RocePacket, RoceError> parse(const Frame& frame);

  /// The payload's pieces, in order: see Frame::for_each_piece.
  template <class Visit>
  void for_each_payload_piece(const Frame& frame, Visit&& visit) const {
    frame.for_each_piece(payload_offset, payload_size, visit);
  }
};

/// What a UD receive queue finds before the payload (IBTA Annex A17 17.4.4): the IPv6 header,
/// or 20 zero bytes and the IPv4 header. `frame` is the one that `packet` was parsed from.
void emit_ud_grh(const Frame& frame, const RocePacket& packet, std::span<std::byte, 40> out);

/// The prepared headers of one path: made once for an address, written once per packet. Per packet
/// only the lengths, BTH and the extended headers differ.
class RoceHeader {
 public:
  RoceHeader() = default;
  /// @pre source and destination GID are both IPv4-mapped or both not
  explicit RoceHeader(const RoceAddress& address);

  /// Headers of a packet with `payload_size` bytes of payload, up to and including BTH and extended
  /// headers.
  std::size_t size(Opcode opcode) const {
    return size_ + BthLayout::kSize + info(opcode).headers_size;
  }

  /// Writes the frame's head, and the tail: pad and room for the ICRC, which is deferred. The
  /// pad count follows from `payload_size`; bth.pad_count is ignored. The segments are the
  /// caller's. @pre info(bth.opcode).defined
  void emit(const Bth& bth, const ExtHeaders& ext, std::size_t payload_size, Frame& frame) const;

 private:
  static constexpr std::size_t kCapacity =
      EthernetLayout::kSize + VlanLayout::kSize + Ipv6Layout::kSize + UdpLayout::kSize;
  std::array<std::byte, kCapacity> bytes_{};
  std::uint8_t size_ = 0;
  std::uint8_t network_offset_ = 0;
  bool is_ipv4_ = false;
};

}  // namespace softhca::wire
