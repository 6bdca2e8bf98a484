// The page of a device file that says how the device's clock goes (host-door contract 5): with it
// libmlx5 makes nanoseconds of time stamps.
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
/// Bytes that programs are to see at this offset of the device file. False: they cannot be stored.
using StorePage = std::function<bool(std::uint64_t offset, std::span<const std::byte> bytes)>;

/// Stores the time of `clock` beside the device's counter. To be stored again within an hour: the
/// counter has 41 bits (mlx5_ib_clock_info::mask), of 6.4 ns each. False: there is no such page.
bool store_clock(Device& device, const WallClock& clock, const StorePage& store);

}  // namespace softhca::uverbs
