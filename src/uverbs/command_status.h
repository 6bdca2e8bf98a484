// Commands of the device as they are: bytes in, bytes out, and an errno as the mlx5 driver has it.
#pragma once

#include <cstddef>
#include <span>

#include "uverbs/device.h"
#include "uverbs/request.h"

namespace softhca::uverbs {

/// Executes a command. EREMOTEIO: `out` has a status of the device that is not OK. Any other: it
/// was not executed. @pre `out` is at least a header, and zero
Errno execute(Device& device, std::span<const std::byte> in, std::span<std::byte> out);
/// For commands that the kernel gives on its own: what the device refuses has an errno by its
/// status.
Errno execute_own(Device& device, std::span<const std::byte> in);

}  // namespace softhca::uverbs
