// Type 0 configuration space: header, BARs, and the functions' capabilities (Power Management, PCI
// Express, MSI-X, optionally MSI, VPD and a vendor specific one). Little-endian, like PCI.
//
// Every byte has a value and two masks: the bits that the host may write, and those that it clears
// by writing 1. A write goes through the masks. The few registers with side effects (power state,
// VPD address, function level reset) are handled after that.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "pcie/msi.h"
#include "pcie/msix.h"
#include "spec/pci/config.h"

namespace softhca::pcie {

inline constexpr unsigned kBarCount = 6;

/// The properties that a base address register announces.
struct Bar {
  std::uint64_t size = 0;  ///< bytes, a power of two, 16 or more; 0: not implemented
  bool is_64bit = false;   ///< uses the next register as its upper half
  bool prefetchable = false;
};

/// Product data of the VPD capability (PCI 3.0 appendix I).
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

/// The registers of a vendor specific capability, whose effects the device defines.
class VendorRegisters {
 public:
  virtual ~VendorRegisters() = default;
  /// Called after the host has written [offset, offset + size) of the capability. `capability` has
  /// all its bytes from the capability ID on, with the host's values; the device overwrites them
  /// with its own.
  virtual void handle_write(std::uint32_t offset, std::size_t size,
                            std::span<std::byte> capability) = 0;
  /// Restores the power-on state: fills the capability behind its three header bytes.
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

  /// Offsets of the capabilities, for tests and tools; hosts walk the list.
  static constexpr std::uint32_t kPowerManagementAt = 0x40;
  static constexpr std::uint32_t kVpdAt = 0x48;
  static constexpr std::uint32_t kExpressAt = 0x60;
  static constexpr std::uint32_t kMsixAt = 0x9c;
  static constexpr std::uint32_t kVendorSpecificAt = 0xb0;
  static constexpr std::uint32_t kMsiAt = 0xe0;

  /// `bars` by index, up to kBarCount.
  ConfigSpace(const Identity& identity, std::span<const Bar> bars, const Msix::Layout& msix);

  /// Adds the VPD capability. To be called at most once, during setup.
  void add_vital_product_data(const VitalProductData& vpd);
  /// Adds a vendor specific capability (PCIe 5.0 7.9.4) of `length` bytes, including its header. To
  /// be called at most once, during setup; `registers` must outlive this.
  void add_vendor_specific(std::uint8_t length, VendorRegisters& registers);

  /// Adds AtomicOp Requester Enable. To be called at most once, during setup.
  void add_atomic_requester();
  /// Rotates the list so that it begins with the capability at `at`. To be called once, after all
  /// capabilities are added.
  void begin_list_with(std::uint8_t at);
  /// Adds the MSI capability with `vectors` vectors. To be called at most once, during setup.
  void add_msi(std::uint16_t vectors);

  const Bar& bar(unsigned index) const { return bars_[index]; }
  /// Bus address of the BAR; 0 until the host assigns it.
  std::uint64_t bar_address(unsigned index) const;

  bool memory_enabled() const;
  bool bus_master_enabled() const;
  /// Called for every doorbell.
  bool in_d0() const {
    return get(kPowerManagementAt, spec::pci::power_management_capability::power_state) == kPmD0;
  }
  /// True if the function may send requests: memory accesses, and messages.
  bool may_send_requests() const { return bus_master_enabled() && in_d0(); }
  /// True if requests may be atomic operations (AtomicOp Requester Enable).
  bool atomic_requests_enabled() const;
  bool msix_enabled() const;
  bool msix_function_masked() const;
  /// The registers of MSI. @pre add_msi() was called
  Msi::MessageControl msi_control() const;
  /// Sets the Pending Bits that the host reads. @pre add_msi() was called
  void set_msi_pending(std::uint32_t pending);

  /// Effects of a write beyond a changed register.
  struct Effects {
    bool function_level_reset = false;
    bool msix_control = false;  ///< the MSI-X Message Control register was written
    bool msi_control = false;   ///< a register of the MSI capability was written
  };

  /// Bytes outside of the 4096 read as zeros and drop writes.
  void read(std::uint32_t offset, std::span<std::byte> out) const;
  Effects write(std::uint32_t offset, std::span<const std::byte> in);

  /// Restores the power-on value of every register.
  void reset();
  /// Takes the function off the bus, as a surprise removal does, or puts it back. The function must
  /// be reset. While it is absent, reads are all ones, writes have no effect, also on BARs, and it
  /// sends no request.
  void set_present(bool present) { present_ = present; }

 private:
  static constexpr std::uint32_t kPmD0 = 0;
  static constexpr std::uint32_t kPmD3hot = 3;

  /// A field of the structure at `at`.
  template <class Field>
  std::uint32_t get(std::uint32_t at, Field) const {
    return Field::read(&value_[at]);
  }
  /// Sets the field's value, and which of its bits the host may write.
  template <class Field>
  void set(std::uint32_t at, Field, std::uint32_t value, std::uint32_t writable = 0) {
    Field::write(&value_[at], value);
    Field::write(&writable_[at], writable);
  }
  template <class Field>
  void clear_on_write(std::uint32_t at, Field) {
    Field::write(&clear_on_write_[at], Field::kMax);
  }

  void begin_capability(std::uint32_t at, spec::pci::capability_id id, std::uint8_t next);
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
  /// If not, the power state is D3hot, so that doorbells need no check of their own.
  bool present_ = true;
};

}  // namespace softhca::pcie
