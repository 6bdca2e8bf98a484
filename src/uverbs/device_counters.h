// The port counters of Linux's sysfs: the values that ib_core and mlx5_ib read from a device, and
// their names.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "uverbs/device.h"

namespace softhca::uverbs {

/// Values of the device, at fixed indexes. They only grow, and can be summed over devices.
inline constexpr std::size_t kDeviceCounters = 33;
using DeviceCounters = std::array<std::uint64_t, kDeviceCounters>;

/// Runs QUERY_VPORT_COUNTER, QUERY_Q_COUNTER for the set of all QPs, and QUERY_CONG_STATISTICS.
/// Nothing: the device refuses.
std::optional<DeviceCounters> read_counters(Device& device);

/// The value of a file in counters/ or hw_counters/. A counter that no RoCE device has is 0.
/// Nothing: there is no such file.
std::optional<std::uint64_t> port_counter(const DeviceCounters& all, std::string_view name);
std::optional<std::uint64_t> hardware_counter(const DeviceCounters& all, std::string_view name);

}  // namespace softhca::uverbs
