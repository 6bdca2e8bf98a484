// Guards of data blocks: the sums by which a block is known to be whole (T10 SBC-3 4.22, FC-PH).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace softhca::rdma {

enum class Guard : std::uint8_t {
  kCrcT10Dif,   ///< CRC-16 with the polynomial 0x8BB7
  kIpChecksum,  ///< RFC 1071
  kCrc32,       ///< that of FC-PH
};

/// The sum of a block goes through here in parts: `sum` of what came before, at first the seed.
/// `at`: where in the block the part begins.
std::uint32_t add_to_guard(Guard guard, std::uint32_t sum, std::span<const std::byte> bytes,
                           std::uint64_t at);
/// What stands in the guard's field when the block is at its end.
std::uint32_t guard_value(Guard guard, std::uint32_t sum);
/// The seed of all ones.
constexpr std::uint32_t guard_ones(Guard guard) {
  return guard == Guard::kCrc32 ? 0xFFFFFFFF : 0xFFFF;
}

}  // namespace softhca::rdma
