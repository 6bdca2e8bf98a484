// Sums of headers for the internet checksum (RFC 1071), in the order of numbers.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "ethernet/packet_info.h"
#include "util/endian.h"

namespace softhca::ethernet {

/// To 16 bits, with the end-around carry of RFC 1071. Sums of words of 16 and of 32 bits, in the
/// order of numbers, may be added before.
constexpr std::uint16_t fold(std::uint64_t sum) {
  // Each half added to the other: the upper one gets the carry of the lower.
  sum += std::rotl(sum, 32);
  auto half = static_cast<std::uint32_t>(sum / (std::uint64_t{1} << 32));
  half += std::rotl(half, 16);
  return static_cast<std::uint16_t>(half / (std::uint32_t{1} << 16));
}

/// Words of 32 bits, to be folded. @pre the size is a multiple of four bytes
inline std::uint64_t add_words(std::span<const std::byte> header) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i != header.size(); i += 4) sum += util::load_be32(header.data() + i);
  return sum;
}

/// Of a header, whose size is a multiple of four bytes.
inline std::uint16_t sum_header(std::span<const std::byte> header) {
  return fold(add_words(header));
}

/// `l4_size`: bytes from the L4 header to the end of the IP packet.
inline std::uint16_t sum_pseudo_header(const PacketInfo& info, std::size_t l4_size) {
  return fold(std::uint64_t{info.pseudo_sum} + l4_size);
}

/// Of L4 header and payload, where the checksum is right. It makes all ones of it and the pseudo
/// header's; and it is never 0, as no L4 header is all zeros.
inline std::uint16_t sum_right_l4(const PacketInfo& info, std::size_t l4_size) {
  const auto rest = static_cast<std::uint16_t>(~sum_pseudo_header(info, l4_size));
  return rest == 0 ? 0xffff : rest;
}

}  // namespace softhca::ethernet
