// PCI IDs of the device. The document names no vendor; the RTL uses that of the FPGA's maker. The
// author's driver expects another device ID of that vendor (docs/jingzhao.md, gap 12).
#pragma once

#include <cstdint>

namespace softhca::jingzhao {

inline constexpr std::uint16_t kVendorId = 0x10EE;
inline constexpr std::uint16_t kDeviceId = 0x1011;
inline constexpr std::uint16_t kDriversDeviceId = 0x7028;

}  // namespace softhca::jingzhao
