// Type 0 configuration space: header, BARs, and the capabilities that our functions have
// (Power Management, PCI Express, MSI-X, optionally MSI, VPD and one of the vendor). Little-endian,
// as PCI is.
//
// Every byte has a value and two masks: which bits the host may write, and which it clears by
// writing 1. A write goes through the masks; the few registers that do more (power state, VPD
// address, function level reset) are looked at afterwards.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "pcie/msi.h"
#include "pcie/msix.h"

namespace softhca::pcie {

inline constexpr unsigned kBarCount = 6;

/// What a base address register announces.
struct Bar {
  std::uint64_t size = 0;  ///< bytes, a power of two, 16 or more; 0: not implemented
  bool is_64bit = false;   ///< takes the next register as its upper half
  bool prefetchable = false;
};

/// What the VPD capability tells about the product (PCI 3.0 appendix I).
struct VitalProductData {
  struct Field {
    std::string keyword;  ///< two characters: PN part number, EC, SN serial number, V0 and so on
    std::string value;    ///< up to 255 characters
  };
  std::string product_name;
  std::vector<Field> read_only;

  /// The resource list: identifier string, VPD-R with its checksum, end tag.
  std::vector<std::byte> encode() const;
};

/// The registers of a vendor specific capability: what they do is the device's business.
class VendorRegisters {
 public:
  virtual ~VendorRegisters() = default;
  /// The host has written [offset, offset + size) of the capability. `capability` has all its
  /// bytes, from the capability ID on, with the host's values in place; the device puts its own
  /// over them.
  virtual void handle_write(std::uint32_t offset, std::size_t size,
                            std::span<std::byte> capability) = 0;
  /// Back to the power-on state: fills the capability behind its three header bytes.
  virtual void reset(std::span<std::byte> capability) = 0;
};

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

  /// Where the capabilities are, for tests and tools; hosts walk the list.
  static constexpr std::uint32_t kPowerManagementAt = 0x40;
  static constexpr std::uint32_t kVpdAt = 0x48;
  static constexpr std::uint32_t kExpressAt = 0x60;
  static constexpr std::uint32_t kMsixAt = 0x9c;
  static constexpr std::uint32_t kVendorSpecificAt = 0xb0;
  static constexpr std::uint32_t kMsiAt = 0xe0;

  /// `bars` by index, up to kBarCount.
  ConfigSpace(const Identity& identity, std::span<const Bar> bars, const Msix::Layout& msix);

  /// Adds the VPD capability. Once, while the function is set up.
  void add_vital_product_data(const VitalProductData& vpd);
  /// Adds a vendor specific capability (PCIe 5.0 7.9.4) of `length` bytes with its header. Once,
  /// while the function is set up; `registers` must live as long as this.
  void add_vendor_specific(std::uint8_t length, VendorRegisters& registers);

  /// Gives the function AtomicOp Requester Enable. Once, while the function is set up.
  void add_atomic_requester();
  /// The list goes round so that it begins with the capability at `at`. Once, after the others.
  void begin_list_with(std::uint8_t at);
  /// Adds the MSI capability for `vectors` vectors. Once, while the function is set up.
  void add_msi(std::uint16_t vectors);

  const Bar& bar(unsigned index) const { return bars_[index]; }
  /// Where the host placed the BAR; 0 until it does.
  std::uint64_t bar_address(unsigned index) const;

  bool memory_enabled() const;
  bool bus_master_enabled() const;
  /// Asked for every doorbell.
  bool in_d0() const {
    return (get8(kPowerManagementAt + kPmControlStatus) & kPmPowerState) == kPmD0;
  }
  /// True if the function may send requests of its own: memory accesses, and messages.
  bool may_send_requests() const { return bus_master_enabled() && in_d0(); }
  /// True if these may be atomic operations (AtomicOp Requester Enable).
  bool atomic_requests_enabled() const;
  bool msix_enabled() const;
  bool msix_function_masked() const;
  /// The registers of MSI. @pre add_msi() was called
  Msi::Control msi_control() const;
  /// What the host reads as Pending Bits. @pre add_msi() was called
  void set_msi_pending(std::uint32_t pending);

  /// What a write asks of the function beyond a changed register.
  struct Effects {
    bool function_level_reset = false;
    bool msix_control = false;  ///< the MSI-X Message Control register was written
    bool msi_control = false;   ///< a register of the MSI capability was written
  };

  /// Bytes outside of the 4096 read as zeros and drop writes.
  void read(std::uint32_t offset, std::span<std::byte> out) const;
  Effects write(std::uint32_t offset, std::span<const std::byte> in);

  /// Every register back to its power-on value.
  void reset();

 private:
  // Of the PCI Power Management capability (PCIe 5.0 7.5.2.2).
  static constexpr std::uint32_t kPmControlStatus = 4;
  static constexpr std::uint16_t kPmPowerState = 0b11;
  static constexpr std::uint16_t kPmD0 = 0;

  void set8(std::uint32_t at, std::uint8_t value, std::uint8_t writable = 0);
  void set16(std::uint32_t at, std::uint16_t value, std::uint16_t writable = 0);
  void set32(std::uint32_t at, std::uint32_t value, std::uint32_t writable = 0);
  void clear_on_write16(std::uint32_t at, std::uint16_t bits);
  std::uint8_t get8(std::uint32_t at) const { return std::to_integer<std::uint8_t>(value_[at]); }
  std::uint16_t get16(std::uint32_t at) const;
  std::uint32_t get32(std::uint32_t at) const;

  void build_header(const Identity& identity);
  void build_bars();
  void build_power_management(std::uint8_t next);
  void build_express(std::uint8_t next);
  void build_msix(const Msix::Layout& msix);
  void apply_vpd_address();
  std::span<std::byte> vendor_specific();

  std::array<Bar, kBarCount> bars_{};
  std::array<std::byte, kSize> value_{};
  std::array<std::byte, kSize> writable_{};
  std::array<std::byte, kSize> clear_on_write_{};
  std::array<std::byte, kSize> power_on_{};
  std::vector<std::byte> vpd_;
  VendorRegisters* vendor_registers_ = nullptr;
  bool has_msi_ = false;
};

}  // namespace softhca::pcie
