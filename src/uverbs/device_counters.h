// What Linux' sysfs counts of a port: what ib_core and mlx5_ib ask a device for, and their names.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "uverbs/device.h"

namespace softhca::uverbs {

/// As the device has them, each at its place: they only grow, and can be added up.
inline constexpr std::size_t kDeviceCounters = 33;
using DeviceCounters = std::array<std::uint64_t, kDeviceCounters>;

/// QUERY_VPORT_COUNTER, QUERY_Q_COUNTER of the set of all QPs, QUERY_CONG_STATISTICS. Nothing: the
/// device refuses.
std::optional<DeviceCounters> read_counters(Device& device);

/// A file of counters/ or hw_counters/ in `all`. What no device of RoCE counts is 0. Nothing: there
/// is no such file.
std::optional<std::uint64_t> port_counter(const DeviceCounters& all, std::string_view name);
std::optional<std::uint64_t> hardware_counter(const DeviceCounters& all, std::string_view name);

}  // namespace softhca::uverbs
