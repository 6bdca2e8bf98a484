// The EEPROM of the port's cable: what `ethtool -m` shows.
#pragma once

#include <cstdint>
#include <span>

namespace softhca::connectx {

inline constexpr std::uint32_t kModuleI2cAddress = 0x50;

/// Bytes from `offset` of a page (SFF-8636: page 0 has the lower 128 bytes before it). Zeros where
/// there is nothing.
void read_module_eeprom(std::uint32_t page, std::uint32_t offset, std::span<std::byte> out);

}  // namespace softhca::connectx
