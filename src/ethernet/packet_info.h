// Classification of a frame: its layers, addresses and ports, for receive side scaling, flow
// steering and checksum offloads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "wire/frame.h"
#include "wire/gid.h"
#include "wire/ipv4.h"
#include "wire/mac_address.h"
#include "wire/traffic_class.h"
#include "wire/vlan.h"

namespace softhca::ethernet {

enum class L3Type : std::uint8_t { kNone, kIpv4, kIpv6 };
enum class L4Type : std::uint8_t { kNone, kTcp, kUdp };

/// Offsets are from the start of the frame; all headers that they refer to are in the frame's head.
struct PacketInfo {
  wire::MacAddress destination_mac;
  wire::MacAddress source_mac;
  /// Outer and inner VLAN tag, with their EtherTypes (802.1Q or 802.1ad).
  struct Tag {
    wire::EtherType tpid{};
    std::uint16_t tci = 0;
    friend bool operator==(const Tag&, const Tag&) = default;
  };
  std::optional<Tag> tag;
  std::optional<Tag> inner_tag;
  /// EtherType behind the tags.
  wire::EtherType ether_type{};

  L3Type l3 = L3Type::kNone;
  std::uint16_t l3_offset = 0;
  /// Bytes of IP header and payload according to the IP header, so without Ethernet padding; never
  /// beyond the frame.
  std::size_t l3_size = 0;
  /// False if the IP length is longer than the frame or shorter than the header.
  bool l3_length_ok = false;
  /// Fields of the IP header, and of all known extension headers.
  struct Ip {
    wire::Gid source;  ///< IPv4 addresses are mapped
    wire::Gid destination;
    wire::TrafficClass traffic_class;
    std::uint8_t hop_limit = 0;
    std::uint32_t flow_label = 0;  ///< of IPv6, 20 bits
    /// Protocol behind all of these headers.
    wire::IpProtocol protocol{};
    bool fragment = false;
    bool options = false;  ///< IPv4 options or IPv6 extension headers
    /// Has an IPv4 LSRR or SSRR option or an IPv6 routing header: the pseudo header cannot be
    /// derived from the packet.
    bool source_routed = false;
    friend bool operator==(const Ip&, const Ip&) = default;
  };
  Ip ip;

  /// Also kNone for a fragment, and for a header that does not fit.
  L4Type l4 = L4Type::kNone;
  /// Offset of the bytes behind the IP headers, whatever they are; 0 if unknown.
  std::uint16_t l4_offset = 0;
  std::uint16_t l4_header_size = 0;
  std::uint16_t source_port = 0;
  std::uint16_t destination_port = 0;
  std::optional<std::uint32_t> ipsec_spi;  ///< of an ESP or AH header
  /// For TCP and UDP: the ones-complement sum of the pseudo header (RFC 9293 3.1, RFC 8200 8.1)
  /// without the length.
  std::uint16_t pseudo_sum = 0;
  std::uint16_t tcp_flags = 0;  ///< NS CWR ECE URG ACK PSH RST SYN FIN (8:0)

  /// Bytes from the L4 header to the end of the IP packet. @pre l4_offset != 0
  std::size_t l4_size() const { return l3_offset + l3_size - l4_offset; }

  friend bool operator==(const PacketInfo&, const PacketInfo&) = default;
};

/// Accepts any frame: fields that are not understood keep their defaults.
PacketInfo classify(const wire::Frame& frame);

/// The same for headers alone, whose length fields are not set yet.
PacketInfo classify_template(std::span<const std::byte> headers);

}  // namespace softhca::ethernet
