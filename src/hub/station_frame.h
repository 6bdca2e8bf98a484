// A frame for the station of shared addresses (station.h), as far as the hub reads it. Any station
// can send one: nothing behind the addresses of a packet is checked but the place of its BTH.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "wire/gid.h"
#include "wire/ids.h"

namespace softhca::hub {

struct StationFrame {
  enum class Kind : std::uint8_t {
    kPacket,    ///< of RoCE v1 or v2, without a VLAN tag, IP options and fragmentation
    kNeighbor,  ///< ARP or Neighbor Discovery
    kOther,
  };

  Kind kind = Kind::kOther;
  // The fields below are set for a packet only.
  wire::Gid from, to;
  wire::Qpn qpn{0};       ///< destination
  std::size_t begin = 0;  ///< offset of the BTH in the frame
  std::size_t size = 0;   ///< bytes from there to the end of the ICRC, as the IP header or the
                          ///< GRH says

  /// `head`: the first bytes of the frame. kHeadMax are enough.
  static StationFrame parse(std::span<const std::byte> head);
  /// Ethernet, IPv6, UDP and BTH.
  static constexpr std::size_t kHeadMax = 14 + 40 + 8 + 12;
};

}  // namespace softhca::hub
