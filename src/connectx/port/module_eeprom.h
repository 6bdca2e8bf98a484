// The EEPROM of the port's cable, as `ethtool -m` shows it.
#pragma once

#include <cstdint>
#include <span>

namespace softhca::connectx {

inline constexpr std::uint32_t kModuleI2cAddress = 0x50;

/// Reads a page (SFF-8636) from `offset` on. Page 0 begins with the lower 128 bytes. Undefined
/// bytes read as zeros.
void read_module_eeprom(std::uint32_t page, std::uint32_t offset, std::span<std::byte> out);

}  // namespace softhca::connectx
