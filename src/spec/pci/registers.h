// Registers of 16 bits: hosts read and write them alone, since the other half of the word may have
// bits that a write clears.
#pragma once

#include <cstdint>

namespace softhca::spec::pci {

/// Offset of the byte that has the lowest bit of `field`.
template <class Field>
constexpr std::uint32_t byte_of(Field) {
  return static_cast<std::uint32_t>(Field::kOffset + Field::kLo / 8);
}

/// Offset of the 16-bit register that has `field`.
template <class Field>
constexpr std::uint32_t register_of(Field) {
  return static_cast<std::uint32_t>(Field::kOffset + Field::kLo / 16 * 2);
}

/// The bits of `field` in its 16-bit register, for `value`.
template <class Field>
constexpr std::uint16_t bits_of(Field, std::uint32_t value = Field::kMax) {
  static_assert(Field::kLo / 16 == Field::kHi / 16);
  return static_cast<std::uint16_t>(value << Field::kLo % 16);
}

/// The value of `field` in its 16-bit register.
template <class Field>
constexpr std::uint16_t value_of(std::uint16_t word, Field) {
  static_assert(Field::kLo / 16 == Field::kHi / 16);
  return static_cast<std::uint16_t>(word >> Field::kLo % 16 & Field::kMax);
}

}  // namespace softhca::spec::pci
