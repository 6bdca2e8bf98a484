// A 128-bit global identifier. In RoCEv2 it is the IP address of a port; an IPv4 address has the
// IPv4-mapped form ::ffff:a.b.c.d (IBTA Annex A17 17.4.2, RFC 4291 2.5.5.2).
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "util/endian.h"

namespace softhca::wire {

struct Gid {
  static constexpr std::size_t kSize = 16;
  std::array<std::byte, kSize> bytes{};

  static Gid from(std::span<const std::byte, kSize> from) {
    Gid gid;
    std::memcpy(gid.bytes.data(), from.data(), kSize);
    return gid;
  }
  static Gid from_ipv4(std::uint32_t address) {
    Gid gid;
    util::store_be32(gid.bytes.data() + 8, 0x0000ffff);
    util::store_be32(gid.bytes.data() + 12, address);
    return gid;
  }
  static Gid from_ipv4(std::uint8_t a, std::uint8_t b, std::uint8_t c, std::uint8_t d) {
    return from_ipv4(std::uint32_t{a} << 24 | std::uint32_t{b} << 16 | std::uint32_t{c} << 8 | d);
  }

  bool is_ipv4() const {
    return util::load_be64(bytes.data()) == 0 && util::load_be32(bytes.data() + 8) == 0x0000ffff;
  }
  /// @pre is_ipv4()
  std::uint32_t to_ipv4() const { return util::load_be32(bytes.data() + 12); }
  /// ff00::/8, or 224.0.0.0/4 in its mapped form.
  bool is_multicast() const {
    return is_ipv4() ? (bytes[12] & std::byte{0xf0}) == std::byte{0xe0}
                     : bytes[0] == std::byte{0xff};
  }
  /// fe80::/10 (RFC 4291 2.5.6).
  bool is_link_local() const {
    return bytes[0] == std::byte{0xfe} && (bytes[1] & std::byte{0xc0}) == std::byte{0x80};
  }
  bool is_zero() const { return *this == Gid{}; }

  friend auto operator<=>(const Gid&, const Gid&) = default;
};

}  // namespace softhca::wire
