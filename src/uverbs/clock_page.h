// The clock page of a device file (kernel interface 5), from which libmlx5 converts time stamps
// to nanoseconds.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "uverbs/device.h"

namespace softhca::uverbs {

/// Nanoseconds since 1970.
using WallClock = std::function<std::chrono::nanoseconds()>;
/// Stores bytes at an offset of the device file, where programs map them. False: not stored.
using StorePage = std::function<bool(std::uint64_t offset, std::span<const std::byte> bytes)>;

/// Stores the time of `clock` beside the device's counter. Repeat within an hour: the counter has
/// 41 bits (mlx5_ib_clock_info::mask) of 6.4 ns each. False: there is no such page.
bool store_clock(Device& device, const WallClock& clock, const StorePage& store);

}  // namespace softhca::uverbs
