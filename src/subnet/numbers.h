// How much of everything a subnet has here, and the codes of attributes (IBTA 14.2.5).
#pragma once

#include <cstddef>
#include <cstdint>

#include "spec/infiniband/constants.h"

namespace softhca::subnet {

inline constexpr std::uint32_t kLinearLids = spec::infiniband::kFirstMulticastLid;
inline constexpr std::uint32_t kMulticastLids = 1024;
/// Entries of multicast tables are masks of ports, one for each position.
inline constexpr std::size_t kPortsInMask = 16;
inline constexpr std::size_t kPositions = 16;
/// A directed route has its ports at [1, kHopsMax).
inline constexpr std::uint32_t kHopsMax = 64;

/// Of one MAD with a table.
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
