// The device's resource limits. Capabilities report these numbers to drivers (PRM 12.3.3), and the
// commands enforce them.
#pragma once

#include <cstdint>

namespace softhca::connectx {

/// Maximum number of DC targets, and the READs and atomics that each of their connections answers
/// at a time (a logarithm). No capability reports the number of DC targets.
inline constexpr std::uint32_t kMaxDcts = 1u << 14;
inline constexpr std::uint32_t kLogDctReads = 4;
/// Maximum bytes of the message of an LSO WQE (a logarithm).
inline constexpr std::uint32_t kLogLsoMax = 18;

/// One member for each limit of limit_list.inc, named after its capability. The defaults are a
/// ConnectX-4's, and also the maxima of this device.
struct Limits {
#define LIMIT(structure, capability, value, kind, commands, what) std::uint32_t capability = value;
#define TOLD(structure, capability, value, why)
#define HAS(structure, capability, what)
#include "connectx/base/limit_list.inc"

  /// 2^n: the count that a logarithmic limit stands for.
  static constexpr std::uint32_t count(std::uint32_t log) { return 1u << log; }

  friend bool operator==(const Limits&, const Limits&) = default;
};

}  // namespace softhca::connectx
