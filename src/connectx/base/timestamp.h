// The device's own clock: the free-running timer of the initialization segment, and the time stamps
// of CQEs.
#pragma once

#include <cstdint>

#include "util/clock.h"

namespace softhca::connectx {

/// device_frequency_khz of the capabilities.
inline constexpr std::uint32_t kDeviceFrequencyKhz = 156250;

/// Ticks of 6.4 ns.
constexpr std::uint64_t device_ticks(util::Time time) {
  const auto ns = static_cast<std::uint64_t>(time.time_since_epoch().count());
  return ns * 5 / 32;
}

}  // namespace softhca::connectx
