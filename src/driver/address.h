// The addresses of a RoCE port.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "util/endian.h"

namespace softhca::driver {

/// An Ethernet address.
struct Mac {
  std::array<std::byte, 6> bytes{};
  friend bool operator==(const Mac&, const Mac&) = default;
};

/// A port's address on a RoCEv2 network: an IPv6 address, or an IPv4 address in the mapped form
/// ::ffff:a.b.c.d (IBTA Annex A17).
struct Gid {
  std::array<std::byte, 16> bytes{};

  static Gid from_ipv4(std::uint8_t a, std::uint8_t b, std::uint8_t c, std::uint8_t d) {
    Gid gid;
    util::store_be16(gid.bytes.data() + 10, 0xffff);
    gid.bytes[12] = std::byte{a};
    gid.bytes[13] = std::byte{b};
    gid.bytes[14] = std::byte{c};
    gid.bytes[15] = std::byte{d};
    return gid;
  }
  bool is_ipv4() const {
    return util::load_be64(bytes.data()) == 0 && util::load_be32(bytes.data() + 8) == 0xffff;
  }
  /// fe80::/10 (RFC 4291 2.5.6).
  bool is_link_local() const {
    return bytes[0] == std::byte{0xfe} && (bytes[1] & std::byte{0xc0}) == std::byte{0x80};
  }
  /// True for the address of an IPv6 or IPv4 multicast group.
  bool is_multicast() const {
    return bytes[0] == std::byte{0xff} ||
           (is_ipv4() && (bytes[12] & std::byte{0xf0}) == std::byte{0xe0});
  }
  friend bool operator==(const Gid&, const Gid&) = default;
};

/// An address vector (IBTA 11.2.2.1) in the form that requests of one driver carry. Only the driver
/// that made it reads it.
struct AddressForm {
  std::array<std::byte, 64> bytes{};
};

}  // namespace softhca::driver
