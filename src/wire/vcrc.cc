#include "wire/vcrc.h"

#include <array>

namespace softhca::wire {
namespace {

/// IBTA 7.8.2: x^16 + x^12 + x^3 + x + 1, with the bits reversed, because each byte is sent lowest
/// bit first.
constexpr std::uint16_t kPolynomial = 0xd008;

constexpr std::array<std::uint16_t, 256> make_table() {
  std::array<std::uint16_t, 256> table{};
  for (unsigned byte = 0; byte != 256; ++byte) {
    unsigned crc = byte;
    for (int bit = 0; bit != 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    table[byte] = static_cast<std::uint16_t>(crc);
  }
  return table;
}

constexpr auto kTable = make_table();

std::uint16_t update(std::uint16_t crc, std::span<const std::byte> bytes) {
  for (const auto byte : bytes) {
    const auto low = (crc ^ static_cast<unsigned>(byte)) & 0xffu;
    crc = static_cast<std::uint16_t>(crc >> 8 ^ kTable[low]);
  }
  return crc;
}

/// The CRC begins with all ones and is sent complemented, so 0 stands for no bytes yet.
constexpr std::uint16_t kComplement = 0xffff;

}  // namespace

std::uint16_t vcrc_of(std::span<const std::byte> packet, std::uint16_t before) {
  return update(before ^ kComplement, packet) ^ kComplement;
}

std::uint16_t vcrc_of(const Frame& frame, std::size_t end) {
  auto crc = kComplement;
  frame.for_each_piece(0, end, [&](std::span<const std::byte> bytes) { crc = update(crc, bytes); });
  return crc ^ kComplement;
}

}  // namespace softhca::wire
