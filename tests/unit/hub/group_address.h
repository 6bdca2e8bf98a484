// Multicast groups for tests that run at the same time.
#pragma once

#include <unistd.h>

#include <cstdint>

#include "util/endian.h"
#include "wire/gid.h"

namespace softhca::hub {

/// An IPv4 group that other test processes do not use.
inline wire::Gid group_address(unsigned number) {
  const auto pid = static_cast<unsigned>(::getpid());
  return wire::Gid::from_ipv4(239, static_cast<std::uint8_t>(1 + pid / 256 % 250),
                              static_cast<std::uint8_t>(pid), static_cast<std::uint8_t>(number));
}

/// The IPv6 address of which only these two ends are not 0.
inline wire::Gid ipv6_address(std::uint16_t head, std::uint8_t tail) {
  wire::Gid gid;
  util::store_be16(gid.bytes.data(), head);
  gid.bytes.back() = std::byte{tail};
  return gid;
}

}  // namespace softhca::hub
