// The device's clock: the free-running timer of the initialization segment (PRM Table 8), and the
// time stamps of CQEs (PRM 7.12.10).
#pragma once

#include <cstdint>

#include "util/clock.h"

namespace softhca::connectx {

/// The capability device_frequency_khz.
inline constexpr std::uint32_t kDeviceFrequencyKhz = 156250;

/// The time in ticks of 6.4 ns.
constexpr std::uint64_t device_ticks(util::Time time) {
  // Five ticks are 32 ns. The division comes first, because five times the nanoseconds may
  // overflow.
  static_assert(std::uint64_t{kDeviceFrequencyKhz} * 32 == 5 * 1000000);
  const auto ns = static_cast<std::uint64_t>(time.time_since_epoch().count());
  return ns / 32 * 5 + ns % 32 * 5 / 32;
}

}  // namespace softhca::connectx
