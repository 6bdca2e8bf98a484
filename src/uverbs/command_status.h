// Device commands as bytes in and out, with the mlx5 driver's errno.
#pragma once

#include <cstddef>
#include <span>

#include "uverbs/device.h"
#include "uverbs/request.h"

namespace softhca::uverbs {

/// Executes a command. EREMOTEIO: `out` holds a device status other than OK. Any other errno: the
/// command was not executed. @pre `out` holds at least a header, and is zero
Errno execute(Device& device, std::span<const std::byte> in, std::span<std::byte> out);
/// Executes a command of the kernel's own. A refusal of the device becomes the errno of its status.
Errno execute_own(Device& device, std::span<const std::byte> in);

}  // namespace softhca::uverbs
