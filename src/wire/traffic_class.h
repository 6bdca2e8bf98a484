// The byte named type of service in IPv4 and traffic class in IPv6 (RFC 2474 3, RFC 3168 5).
#pragma once

#include <cstdint>

#include "spec/infiniband/constants.h"

namespace softhca::wire {

struct TrafficClass {
  std::uint8_t value = 0;

  static TrafficClass make(std::uint8_t dscp, std::uint8_t ecn) {
    return {static_cast<std::uint8_t>(dscp << 2 | (ecn & 3))};
  }
  /// Differentiated services code point, bits 7:2.
  std::uint8_t dscp() const { return spec::infiniband::dscp_of(value); }
  /// Explicit congestion notification, bits 1:0 (RFC 3168).
  std::uint8_t ecn() const { return value & 3; }
  /// True if a router has marked the packet.
  bool met_congestion() const { return ecn() == 3; }
  friend bool operator==(const TrafficClass&, const TrafficClass&) = default;
};

}  // namespace softhca::wire
