// The RSNIC-IP: an FPGA card that answers the mlx5 driver as a ConnectX-4 Lx. It is a
// connectx/ device with its own identity, limits and capabilities, plus the parts in this folder.
#pragma once

#include <cstdint>

#include "connectx/device.h"

namespace softhca::rsnic {

/// Two facts of the document stem from one old library and break today's (docs/rsnic.md). A card
/// either has them or works with the stock driver.
enum class Profile : std::uint8_t {
  kDriver,
  kDocument,  ///< UARs 0 to 7, SQ at the next 4 KiB behind the RQ
};

/// A card with the identity and limits of the document. The caller sets name, addresses and clock.
connectx::DeviceOptions device_options(Profile profile = Profile::kDriver);

/// Sets the profile of a card.
void set_profile(connectx::DeviceOptions& options, Profile profile);

}  // namespace softhca::rsnic
