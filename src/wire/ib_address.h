// Source and destination of a packet of the InfiniBand transport: all headers below the BTH, for
// each link that can carry it.
#pragma once

#include <cstdint>
#include <optional>

#include "wire/gid.h"
#include "wire/ids.h"
#include "wire/mac_address.h"

namespace softhca::wire {

/// The headers before the BTH.
enum class Encapsulation : std::uint8_t {
  kRoceV2,  ///< Ethernet, IPv4 or IPv6, UDP (IBTA Annex A17)
  kRoceV1,  ///< Ethernet, GRH (IBTA Annex A16)
  kLocal,   ///< LRH: a packet of this subnet (IBTA 5.2)
  kGlobal,  ///< LRH, GRH
};

/// The encapsulation says which fields are used; the others are zero.
struct IbAddress {
  Encapsulation encapsulation = Encapsulation::kRoceV2;

  // Ethernet.
  MacAddress destination_mac;
  MacAddress source_mac;
  std::optional<std::uint16_t> vlan_tci;
  std::uint16_t udp_source_port = 0;  ///< RoCEv2: the entropy of the path

  // LRH.
  Lid destination_lid;
  Lid source_lid;
  std::uint8_t service_level = 0;
  std::uint8_t virtual_lane = 0;

  // GRH, or the IP header in its place. With RoCEv2, either both GIDs are IPv4-mapped (then the
  // packet is IPv4) or neither is.
  Gid source_gid;
  Gid destination_gid;
  std::uint8_t traffic_class = 0;  ///< RoCEv2: DSCP (7:2) and ECN (1:0)
  std::uint32_t flow_label = 0;    ///< 20 bits; not in IPv4
  std::uint8_t hop_limit = 0;

  bool is_ethernet() const {
    return encapsulation == Encapsulation::kRoceV2 || encapsulation == Encapsulation::kRoceV1;
  }
  /// True if the GIDs are used.
  bool is_global() const { return encapsulation != Encapsulation::kLocal; }
  bool is_ipv4() const {
    return encapsulation == Encapsulation::kRoceV2 && destination_gid.is_ipv4();
  }
  friend bool operator==(const IbAddress&, const IbAddress&) = default;
};

}  // namespace softhca::wire
