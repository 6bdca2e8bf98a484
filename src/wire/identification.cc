#include "wire/identification.h"

namespace softhca::wire {
namespace {

/// Polynomials modulo that of the CRC (IBTA 7.8.1), as the CRC's register holds them: the highest
/// bit is the constant term.
using Polynomial = std::uint32_t;

constexpr Polynomial kModulus = 0xedb88320;
constexpr Polynomial kHighestBit = 0x80000000;
constexpr Polynomial kOne = kHighestBit;

constexpr Polynomial times_x(Polynomial a) { return (a >> 1) ^ ((a & 1) != 0 ? kModulus : 0); }

constexpr Polynomial divided_by_x(Polynomial a) {
  return (a & kHighestBit) != 0 ? ((a ^ kModulus) << 1) | 1 : a << 1;
}

constexpr Polynomial multiply(Polynomial a, Polynomial b) {
  Polynomial product = 0;
  for (; b != 0; b <<= 1) {
    if ((b & kHighestBit) != 0) product ^= a;
    a = times_x(a);
  }
  return product;
}

constexpr Polynomial byte() {
  Polynomial byte = kOne;
  for (int bit = 0; bit != 8; ++bit) byte = times_x(byte);
  return byte;
}

constexpr Polynomial undo_of_a_byte() {
  Polynomial undo = kOne;
  for (int bit = 0; bit != 8; ++bit) undo = divided_by_x(undo);
  return undo;
}

/// `base` to the power of `exponent`.
Polynomial power(Polynomial base, std::size_t exponent) {
  Polynomial result = kOne;
  for (; exponent != 0; exponent >>= 1) {
    if ((exponent & 1) != 0) result = multiply(result, base);
    base = multiply(base, base);
  }
  return result;
}

constexpr std::size_t kOwn = 2;  ///< bytes of an identification

/// The bytes of an identification as the CRC's register holds them, the first one lowest, and back.
constexpr std::uint16_t swapped(std::uint32_t bytes) {
  return static_cast<std::uint16_t>((bytes & 0xff) << 8 | bytes >> 8);
}

}  // namespace

std::uint32_t icrc_change(std::uint16_t identification, std::size_t behind) {
  return multiply(swapped(identification), power(byte(), behind + kOwn));
}

std::optional<std::uint16_t> HiddenIdentification::find(std::uint32_t difference,
                                                        std::size_t behind) {
  auto& known = known_[behind / 4 % known_.size()];
  if (known.behind != behind)
    known = {.behind = behind, .factor = power(undo_of_a_byte(), behind + kOwn)};
  // The register before the two bytes were processed: they are in it.
  const auto bytes = multiply(difference, known.factor);
  if (bytes > 0xffff) return std::nullopt;
  return swapped(bytes);
}

}  // namespace softhca::wire
