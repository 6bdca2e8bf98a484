// Guards of data blocks: checksums that protect a block (T10 SBC-3 4.22, FC-PH).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace softhca::rdma {

enum class Guard : std::uint8_t {
  kCrcT10Dif,   ///< CRC-16 with the polynomial 0x8BB7
  kIpChecksum,  ///< RFC 1071
  kCrc32,       ///< the CRC-32 of FC-PH
};

/// Adds one part of a block to the checksum. `sum`: the result for the parts before it, or the
/// seed. `at`: offset of the part in the block.
std::uint32_t add_to_guard(Guard guard, std::uint32_t sum, std::span<const std::byte> bytes,
                           std::uint64_t at);
/// The value of the guard field for a finished checksum.
std::uint32_t guard_value(Guard guard, std::uint32_t sum);
/// The seed with all bits set.
constexpr std::uint32_t guard_ones(Guard guard) {
  return guard == Guard::kCrc32 ? 0xFFFFFFFF : 0xFFFF;
}

}  // namespace softhca::rdma
