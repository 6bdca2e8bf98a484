// How much of everything a device has. Its capabilities tell drivers these numbers (PRM 12.3.3),
// and its commands hold them to these.
#pragma once

#include <cstdint>

namespace softhca::connectx {

/// DC targets that there may be, and READs and atomics that each of their connections answers at a
/// time (a logarithm). No capability tells the first.
inline constexpr std::uint32_t kMaxDcts = 1u << 14;
inline constexpr std::uint32_t kLogDctReads = 4;
/// Bytes of a message that an LSO WQE may have (a logarithm).
inline constexpr std::uint32_t kLogLsoMax = 18;

/// A member for each limit of limit_list.inc, under its capability's name; at first what a
/// ConnectX-4 has, which is also the most that the device can be made with.
struct Limits {
#define LIMIT(structure, capability, value, kind, commands, what) std::uint32_t capability = value;
#define TOLD(structure, capability, value, why)
#define HAS(structure, capability, what)
#include "connectx/base/limit_list.inc"

  /// 2^n, for the limits that are logarithms.
  static constexpr std::uint32_t count(std::uint32_t log) { return 1u << log; }

  friend bool operator==(const Limits&, const Limits&) = default;
};

}  // namespace softhca::connectx
