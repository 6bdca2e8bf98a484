// The vendor specific capability of Mellanox devices: a gateway to internal address spaces, with a
// semaphore for those who share it.
//
// The manual does not describe it; the positions are those of the Linux driver (mlx5_core). The
// driver warns when a device has none. This one offers the semaphore and no address space: every
// space that is asked for answers "not supported".
#pragma once

#include <cstdint>

#include "pcie/config_space.h"

namespace softhca::connectx {

class VendorCapability final : public pcie::VendorRegisters {
 public:
  static constexpr std::uint8_t kLength = 0x18;  ///< bytes, with the header
  // Byte offsets in the capability, 32-bit little-endian registers.
  static constexpr std::uint32_t kControl = 0x04;  ///< status (31:29), space (15:0)
  static constexpr std::uint32_t kCounter = 0x08;  ///< a new value for each taker of the semaphore
  static constexpr std::uint32_t kSemaphore = 0x0C;  ///< 0: free; else the holder's counter value
  static constexpr std::uint32_t kAddress = 0x10;
  static constexpr std::uint32_t kData = 0x14;

  void handle_write(std::uint32_t offset, std::size_t size,
                    std::span<std::byte> capability) override;
  void reset(std::span<std::byte> capability) override;

 private:
  void show(std::span<std::byte> capability) const;

  std::uint32_t space_ = 0;
  std::uint32_t counter_ = 1;
  std::uint32_t semaphore_ = 0;
};

}  // namespace softhca::connectx
