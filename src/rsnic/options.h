// The RSNIC-IP (seed 001): an FPGA card that answers the mlx5 driver as a ConnectX-4 Lx. To its
// host it is a ConnectX with an identity, limits and capabilities of its own; so it is made of
// connectx/, which is told these, and of what stands in this folder.
#pragma once

#include <cstdint>

#include "connectx/device.h"

namespace softhca::rsnic {

/// Two of the document's facts are what one old library did, and stand in the way of today's
/// (docs/rsnic.md): a card has them, or works with the stock driver.
enum class Profile : std::uint8_t {
  kDriver,
  kDocument,  ///< UARs 0 to 7, SQ at the next 4 KiB behind the RQ
};

/// A card with the identity and limits of the document. Name, addresses and clock are the caller's.
connectx::DeviceOptions device_options(Profile profile = Profile::kDriver);

/// The card is to have this profile.
void set_profile(connectx::DeviceOptions& options, Profile profile);

}  // namespace softhca::rsnic
