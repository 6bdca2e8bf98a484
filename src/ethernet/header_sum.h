// Sums of headers for the internet checksum (RFC 1071), in host byte order.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "ethernet/packet_info.h"
#include "util/endian.h"

namespace softhca::ethernet {

/// Folds a sum to 16 bits, with the end-around carry of RFC 1071. It may be the sum of 16-bit and
/// 32-bit words in host byte order.
constexpr std::uint16_t fold(std::uint64_t sum) {
  // Each half is added to the other: the upper one receives the carry of the lower.
  sum += std::rotl(sum, 32);
  auto half = static_cast<std::uint32_t>(sum / (std::uint64_t{1} << 32));
  half += std::rotl(half, 16);
  return static_cast<std::uint16_t>(half / (std::uint32_t{1} << 16));
}

/// Sums 32-bit words; the result must be folded. @pre the size is a multiple of four bytes
inline std::uint64_t add_words(std::span<const std::byte> header) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i != header.size(); i += 4) sum += util::load_be32(header.data() + i);
  return sum;
}

/// Folded sum of a header. @pre the size is a multiple of four bytes
inline std::uint16_t sum_header(std::span<const std::byte> header) {
  return fold(add_words(header));
}

/// Folded sum of the pseudo header. `l4_size`: bytes from the L4 header to the end of the IP
/// packet.
inline std::uint16_t sum_pseudo_header(const PacketInfo& info, std::size_t l4_size) {
  return fold(std::uint64_t{info.pseudo_sum} + l4_size);
}

/// Sum of L4 header and payload of a packet with a correct checksum: together with the pseudo
/// header's sum it is all ones. It is never 0, because no L4 header is all zeros.
inline std::uint16_t sum_right_l4(const PacketInfo& info, std::size_t l4_size) {
  const auto rest = static_cast<std::uint16_t>(~sum_pseudo_header(info, l4_size));
  return rest == 0 ? 0xffff : rest;
}

}  // namespace softhca::ethernet
