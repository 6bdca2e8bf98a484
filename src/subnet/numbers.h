// Sizes of a subnet's tables, and the codes of attributes (IBTA 14.2.5).
#pragma once

#include <cstddef>
#include <cstdint>

#include "spec/infiniband/constants.h"

namespace softhca::subnet {

inline constexpr std::uint32_t kLinearLids = spec::infiniband::kFirstMulticastLid;
inline constexpr std::uint32_t kMulticastLids = 1024;
/// A multicast table entry is a port mask for one position; each position covers 16 ports.
inline constexpr std::size_t kPortsInMask = 16;
inline constexpr std::size_t kPositions = 16;
/// A directed route holds its ports at [1, kHopsMax).
inline constexpr std::uint32_t kHopsMax = 64;

/// Table entries in one MAD.
inline constexpr std::size_t kPkeysInBlock = 32;
inline constexpr std::size_t kLidsInBlock = 64;
inline constexpr std::size_t kGroupsInBlock = 32;

// PortInfo.
inline constexpr std::uint64_t kDefaultPrefix = 0xFE80'0000'0000'0000;
inline constexpr std::uint32_t kWidth4x = 2, kWidths = 3;  ///< 1x and 4x
inline constexpr std::uint32_t kSpeed10 = 4, kSpeeds = 7;  ///< 2.5, 5 and 10 Gb/s
inline constexpr std::uint32_t kMtu4096 = 5;
inline constexpr std::uint32_t kOneLane = 1;  ///< VL0 alone
inline constexpr std::uint32_t kArbitrationEntries = 8;
inline constexpr std::uint32_t kRate40 = 7;           ///< PathRecord: 40 Gb/s
inline constexpr std::uint32_t kIsManager = 1u << 1;  ///< PortInfo:CapabilityMask

}  // namespace softhca::subnet
