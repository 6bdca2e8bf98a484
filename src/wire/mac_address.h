// A 48-bit Ethernet address.
#pragma once

#include <algorithm>
#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "util/endian.h"

namespace softhca::wire {

struct MacAddress {
  static constexpr std::size_t kSize = 6;
  std::array<std::byte, kSize> bytes{};

  static MacAddress from(std::span<const std::byte, kSize> from) {
    MacAddress mac;
    std::memcpy(mac.bytes.data(), from.data(), kSize);
    return mac;
  }
  /// Makes the address from the low 48 bits, most significant byte first: 0x020000000001 is
  /// 02:00:00:00:00:01.
  static MacAddress from_u64(std::uint64_t value) {
    MacAddress mac;
    util::store_be16(mac.bytes.data(), static_cast<std::uint16_t>(value >> 32));
    util::store_be32(mac.bytes.data() + 2, static_cast<std::uint32_t>(value));
    return mac;
  }
  std::uint64_t to_u64() const {
    return std::uint64_t{util::load_be16(bytes.data())} << 32 | util::load_be32(bytes.data() + 2);
  }
  static constexpr MacAddress broadcast() {
    MacAddress mac;
    for (auto& byte : mac.bytes) byte = std::byte{0xff};
    return mac;
  }

  /// IEEE 802 8.2.2: the I/G bit. Broadcast is a multicast address too.
  bool is_multicast() const { return (bytes[0] & std::byte{1}) != std::byte{0}; }
  bool is_zero() const { return *this == MacAddress{}; }

  friend auto operator<=>(const MacAddress&, const MacAddress&) = default;
};

}  // namespace softhca::wire
