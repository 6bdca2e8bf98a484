// The vendor specific capability of Mellanox devices: a gateway to internal address spaces.
// Programs share it by a semaphore.
//
// The manual does not describe it (src/spec/connectx/gateway.layout names the sources). mlx5_core
// warns if a device lacks it.
#pragma once

#include <cstdint>

#include "connectx/function/internal_spaces.h"
#include "pcie/config_space.h"

namespace softhca::connectx {

class VendorCapability final : public pcie::VendorRegisters {
 public:
  static constexpr std::uint8_t kLength = 0x18;  ///< bytes, including the header
  // Byte offsets in the capability, 32-bit little-endian registers.
  static constexpr std::uint32_t kControl = 0x04;  ///< gateway_control
  static constexpr std::uint32_t kCounter = 0x08;  ///< a new value whenever the semaphore is taken
  static constexpr std::uint32_t kSemaphore = 0x0C;  ///< the holder's counter value; 0: free
  static constexpr std::uint32_t kAddress = 0x10;    ///< gateway_address: a write starts the access
  static constexpr std::uint32_t kData = 0x14;

  /// @pre `spaces` outlives this
  explicit VendorCapability(InternalSpaces& spaces) : spaces_(spaces) {}

  void handle_write(std::uint32_t offset, std::size_t size,
                    std::span<std::byte> capability) override;
  void reset(std::span<std::byte> capability) override;

 private:
  void select_space(std::uint32_t control);
  void access(std::uint32_t address);
  void show(std::span<std::byte> capability) const;

  InternalSpaces& spaces_;
  std::uint32_t control_ = 0;
  std::uint32_t counter_ = 1;
  std::uint32_t semaphore_ = 0;
  std::uint32_t address_ = 0;
  std::uint32_t data_ = 0;
};

}  // namespace softhca::connectx
