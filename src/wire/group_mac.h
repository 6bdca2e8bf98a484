// The Ethernet address of a multicast group.
#pragma once

#include <cstddef>

#include "wire/gid.h"
#include "wire/mac_address.h"

namespace softhca::wire {

/// RFC 1112 6.4: the low 23 bits of an IPv4 group; RFC 2464 7: the last 32 bits of any other.
inline MacAddress mac_of_group(const Gid& group) {
  const auto& b = group.bytes;
  if (!group.is_ipv4()) return {{std::byte{0x33}, std::byte{0x33}, b[12], b[13], b[14], b[15]}};
  return {
      {std::byte{0x01}, std::byte{0x00}, std::byte{0x5E}, b[13] & std::byte{0x7F}, b[14], b[15]}};
}

}  // namespace softhca::wire
