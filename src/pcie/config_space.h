// Type 0 configuration space: header, BARs, and the capabilities that our functions have
// (Power Management, PCI Express, MSI-X, optionally VPD). Little-endian, as PCI is.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace softhca::pcie {

struct Bar;

class ConfigSpace {
 public:
  static constexpr std::size_t kSize = 4096;

  struct Identity {
    std::uint16_t vendor_id;
    std::uint16_t device_id;
    std::uint16_t subsystem_vendor_id;
    std::uint16_t subsystem_id;
    std::uint32_t class_code;  ///< 24 bits: class, subclass, programming interface
    std::uint8_t revision_id;
  };
  // The rest of this header belongs to pcie/: see its README.
};

}  // namespace softhca::pcie
