// The page of a device file that says how the device's clock goes (host-door contract 5): with it
// libmlx5 makes nanoseconds of time stamps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "uverbs/device.h"

namespace softhca::uverbs {

/// Bytes that programs are to see at this offset of the device file. False: they cannot be stored.
using StorePage = std::function<bool(std::uint64_t offset, std::span<const std::byte> bytes)>;

/// Tells the time that it is now. To be told again within an hour: the counter that it speaks of
/// has 41 bits (mlx5_ib_clock_info::mask), of 6.4 ns each.
bool store_clock(Device& device, const StorePage& store);

}  // namespace softhca::uverbs
