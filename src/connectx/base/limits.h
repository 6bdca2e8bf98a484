// The device's resource limits. Capabilities report these numbers to drivers (PRM 12.3.3), and the
// commands enforce them.
#pragma once

#include <cstdint>

namespace softhca::connectx {

/// Maximum number of DC targets, which no capability reports, and the READs and atomics that each
/// of their connections answers at a time (a logarithm).
inline constexpr std::uint32_t kMaxDcts = 1u << 14;
inline constexpr std::uint32_t kLogDctReads = 4;
/// Maximum bytes of an LSO message (a logarithm).
inline constexpr std::uint32_t kLogLsoMax = 18;

/// One member for each limit of limit_list.inc, named after its capability. The defaults are those
/// of a ConnectX-4, and the maxima of this device.
struct Limits {
#define LIMIT(structure, capability, value, kind, commands, what) std::uint32_t capability = value;
#define TOLD(structure, capability, value, why)
#define HAS(structure, capability, what)
#include "connectx/base/limit_list.inc"

  /// The count of a logarithmic limit.
  static constexpr std::uint32_t count(std::uint32_t log) { return 1u << log; }

  friend bool operator==(const Limits&, const Limits&) = default;
};

}  // namespace softhca::connectx
