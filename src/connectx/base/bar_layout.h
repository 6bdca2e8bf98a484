// Layout of BAR0 (PRM 7.2): the initialization segment, doorbell pages, MSI-X.
#pragma once

#include <cstdint>

namespace softhca::connectx {

/// UAR pages are 4 KiB pages of BAR0; pages 0 to 2 hold the initialization segment.
inline constexpr std::uint64_t kBarSize = 32u << 20;
inline constexpr std::uint64_t kUarPageSize = 4096;
inline constexpr std::uint32_t kFirstUar = 3;
/// Offset of the MSI-X table and PBA. They occupy the last UAR pages of the BAR, which are never
/// allocated as UARs.
inline constexpr std::uint32_t kMsixOffset = kBarSize - 2 * kUarPageSize;
inline constexpr std::uint32_t kUarCount = kMsixOffset / kUarPageSize - kFirstUar;
/// Number of the last UARs, which are for processes. A guest may map them (SharedDoorbells).
inline constexpr std::uint32_t kSharedUars = 1024;
inline constexpr std::uint32_t kFirstSharedUar = kFirstUar + kUarCount - kSharedUars;

}  // namespace softhca::connectx
