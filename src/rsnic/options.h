// The RSNIC-IP (seed 001): an FPGA card that answers the mlx5 driver as a ConnectX-4 Lx. To its
// host it is a ConnectX with an identity, limits and capabilities of its own; so it is made of
// connectx/, which is told these, and of what stands in this folder.
#pragma once

#include "connectx/device.h"

namespace softhca::rsnic {

/// A card with the identity and limits of the document. Name, addresses and clock are the caller's.
connectx::DeviceOptions device_options();

}  // namespace softhca::rsnic
