#include "pcie/config_space.h"

#include <algorithm>
#include <bit>
#include <cassert>

#include "util/endian.h"

namespace softhca::pcie {
namespace {

// Type 0 header: PCIe 5.0 7.5.1.
constexpr std::uint32_t kVendorId = 0x00;
constexpr std::uint32_t kDeviceId = 0x02;
constexpr std::uint32_t kCommand = 0x04;
constexpr std::uint16_t kCommandMemorySpace = 1u << 1;
constexpr std::uint16_t kCommandBusMaster = 1u << 2;
constexpr std::uint16_t kCommandParityError = 1u << 6;
constexpr std::uint16_t kCommandSerr = 1u << 8;
constexpr std::uint32_t kStatus = 0x06;
constexpr std::uint16_t kStatusCapabilities = 1u << 4;
constexpr std::uint16_t kStatusErrors = 0xf900;  ///< cleared by writing 1
constexpr std::uint32_t kRevisionId = 0x08;
constexpr std::uint32_t kCacheLineSize = 0x0c;
constexpr std::uint32_t kBar0 = 0x10;
constexpr std::uint32_t kBarTypeMemory64 = 0b100;
constexpr std::uint32_t kBarPrefetchable = 0b1000;
constexpr std::uint32_t kBarFlags = 0xf;
constexpr std::uint32_t kSubsystemVendorId = 0x2c;
constexpr std::uint32_t kSubsystemId = 0x2e;
constexpr std::uint32_t kCapabilitiesPointer = 0x34;
constexpr std::uint32_t kInterruptLine = 0x3c;

// PCI Power Management capability: PCIe 5.0 7.5.2.
constexpr std::uint8_t kPowerManagementId = 0x01;
constexpr std::uint32_t kPmCapabilities = 2;
constexpr std::uint16_t kPmVersion3 = 3;
constexpr std::uint16_t kPmNoSoftReset = 1u << 3;
constexpr std::uint16_t kPmD3Hot = 3;

// Vital Product Data capability: PCIe 5.0 7.9.19.
constexpr std::uint8_t kVpdId = 0x03;
constexpr std::uint32_t kVpdAddress = 2;
constexpr std::uint16_t kVpdFlag = 1u << 15;
constexpr std::uint32_t kVpdData = 4;
constexpr std::size_t kVpdSizeMax = 0x8000;

// PCI Express capability: PCIe 5.0 7.5.3.
constexpr std::uint8_t kExpressId = 0x10;
constexpr std::uint32_t kExpressCapabilities = 0x02;
constexpr std::uint16_t kExpressVersion2Endpoint = 0x0002;
constexpr std::uint32_t kDeviceCapabilities = 0x04;
constexpr std::uint32_t kDeviceControl = 0x08;
constexpr std::uint16_t kInitiateFlr = 1u << 15;
constexpr std::uint32_t kDeviceStatus = 0x0a;
constexpr std::uint32_t kLinkCapabilities = 0x0c;
constexpr std::uint32_t kLinkControl = 0x10;
constexpr std::uint32_t kLinkStatus = 0x12;
constexpr std::uint32_t kDeviceCapabilities2 = 0x24;
constexpr std::uint32_t kDeviceControl2 = 0x28;
constexpr std::uint16_t kAtomicOpRequesterEnable = 1u << 6;
constexpr std::uint32_t kLinkCapabilities2 = 0x2c;
constexpr std::uint32_t kLinkControl2 = 0x30;

// Vendor specific capability: PCIe 5.0 7.9.4.
constexpr std::uint8_t kVendorSpecificId = 0x09;
constexpr std::uint32_t kVendorSpecificLength = 2;
constexpr std::uint32_t kVendorSpecificBody = 3;

// MSI-X capability: PCIe 5.0 7.7.2.
constexpr std::uint8_t kMsixId = 0x11;
constexpr std::uint32_t kMsixControl = 2;
constexpr std::uint16_t kMsixEnable = 1u << 15;
constexpr std::uint16_t kMsixFunctionMask = 1u << 14;
constexpr std::uint32_t kMsixTable = 4;
constexpr std::uint32_t kMsixPba = 8;

// MSI capability with 64-bit addresses and per-vector masking: PCIe 5.0 7.7.1.
constexpr std::uint8_t kMsiId = 0x05;
constexpr std::uint32_t kMsiControl = 2;
constexpr std::uint16_t kMsiEnable = 1u << 0;
constexpr unsigned kMsiMultipleMessageCapable = 1;  ///< its lowest bit
constexpr unsigned kMsiMultipleMessageEnable = 4;   ///< its lowest bit
constexpr std::uint16_t kMsiMultipleMessageMask = 0b111;
constexpr std::uint16_t kMsi64Bit = 1u << 7;
constexpr std::uint16_t kMsiPerVectorMasking = 1u << 8;
constexpr std::uint32_t kMsiAddress = 4;
constexpr std::uint32_t kMsiData = 0x0c;
constexpr std::uint32_t kMsiMaskBits = 0x10;
constexpr std::uint32_t kMsiPendingBits = 0x14;
constexpr std::uint32_t kMsiSize = 0x18;

bool touches(std::uint32_t offset, std::size_t length, std::uint32_t at, std::uint32_t width) {
  return offset < at + width && at < offset + length;
}

}  // namespace

ConfigSpace::ConfigSpace(const Identity& identity, std::span<const Bar> bars,
                         const Msix::Layout& msix) {
  assert(bars.size() <= kBarCount);
  std::copy(bars.begin(), bars.end(), bars_.begin());
  build_header(identity);
  build_bars();
  build_power_management(kExpressAt);
  build_express(kMsixAt);
  build_msix(msix);
  power_on_ = value_;
}

void ConfigSpace::build_header(const Identity& identity) {
  set16(kVendorId, identity.vendor_id);
  set16(kDeviceId, identity.device_id);
  set16(kCommand, 0,
        // Interrupt Disable may be 0 without a legacy interrupt (PCIe 5.0 7.5.1.1.3).
        kCommandMemorySpace | kCommandBusMaster | kCommandParityError | kCommandSerr);
  set16(kStatus, kStatusCapabilities);
  clear_on_write16(kStatus, kStatusErrors);
  set32(kRevisionId, identity.class_code << 8 | identity.revision_id);
  set8(kCacheLineSize, 0, 0xff);
  set16(kSubsystemVendorId, identity.subsystem_vendor_id);
  set16(kSubsystemId, identity.subsystem_id);
  set8(kCapabilitiesPointer, kPowerManagementAt);
  // Interrupt Pin stays 0: the functions have no legacy interrupt.
  set8(kInterruptLine, 0, 0xff);
}

void ConfigSpace::build_bars() {
  for (unsigned index = 0; index < kBarCount; ++index) {
    const auto& bar = bars_[index];
    if (bar.size == 0) continue;
    assert(std::has_single_bit(bar.size) && bar.size >= 16);
    assert(bar.is_64bit || bar.size <= 1u << 31);
    const auto at = kBar0 + index * 4;
    const auto flags =
        (bar.is_64bit ? kBarTypeMemory64 : 0) | (bar.prefetchable ? kBarPrefetchable : 0);
    // PCIe 5.0 7.5.1.2.1: address bits below the size are hardwired to 0, so that a host that
    // writes all ones reads back the size.
    const auto writable = ~(bar.size - 1);
    set32(at, flags, static_cast<std::uint32_t>(writable) & ~kBarFlags);
    if (!bar.is_64bit) continue;
    assert(index + 1 < kBarCount && bars_[index + 1].size == 0);
    set32(at + 4, 0, static_cast<std::uint32_t>(writable >> 32));
    ++index;
  }
}

void ConfigSpace::build_power_management(std::uint8_t next) {
  const auto at = kPowerManagementAt;
  set8(at, kPowerManagementId);
  set8(at + 1, next);
  set16(at + kPmCapabilities, kPmVersion3);
  // No_Soft_Reset: a transition through D3hot keeps the device's state.
  set16(at + kPmControlStatus, kPmNoSoftReset, kPmPowerState);
}

void ConfigSpace::build_express(std::uint8_t next) {
  const auto at = kExpressAt;
  set8(at, kExpressId);
  set8(at + 1, next);
  set16(at + kExpressCapabilities, kExpressVersion2Endpoint);
  constexpr std::uint32_t kPayload512 = 2, kExtendedTag = 1u << 5, kRoleBasedErrors = 1u << 15,
                          kFlr = 1u << 28;
  set32(at + kDeviceCapabilities, kPayload512 | kExtendedTag | kRoleBasedErrors | kFlr);
  constexpr std::uint16_t kRelaxedOrdering = 1u << 4, kNoSnoop = 1u << 11,
                          kReadRequest512 = 2u << 12;
  set16(at + kDeviceControl, kRelaxedOrdering | kNoSnoop | kReadRequest512, 0xffff & ~kInitiateFlr);
  clear_on_write16(at + kDeviceStatus, 0xf);
  constexpr std::uint32_t kSpeed8GT = 3, kWidth16 = 16u << 4;
  set32(at + kLinkCapabilities, kSpeed8GT | kWidth16);
  set16(at + kLinkControl, 0, 0x0fcb);  // ASPM, RCB, common clock, synch, clock and autonomous bits
  constexpr std::uint16_t kSlotClock = 1u << 12;
  set16(at + kLinkStatus, kSpeed8GT | kWidth16 | kSlotClock);
  constexpr std::uint32_t kTimeoutRangesABCD = 0xf, kTimeoutDisable = 1u << 4;
  set32(at + kDeviceCapabilities2, kTimeoutRangesABCD | kTimeoutDisable);
  set16(at + kDeviceControl2, 0, 0x001f);
  constexpr std::uint32_t kSpeeds2_5To8GT = 0b111u << 1;
  set32(at + kLinkCapabilities2, kSpeeds2_5To8GT);
  set16(at + kLinkControl2, kSpeed8GT, 0xf);
}

void ConfigSpace::build_msix(const Msix::Layout& msix) {
  const auto at = kMsixAt;
  assert(msix.bar < kBarCount);
  assert(std::uint64_t{msix.table_offset} + msix.table_size() <= bars_[msix.bar].size);
  assert(std::uint64_t{msix.pba_offset} + msix.pba_size() <= bars_[msix.bar].size);
  set8(at, kMsixId);
  set8(at + 1, 0);
  set16(at + kMsixControl, static_cast<std::uint16_t>(msix.vectors - 1),
        kMsixEnable | kMsixFunctionMask);
  set32(at + kMsixTable, msix.table_offset | msix.bar);
  set32(at + kMsixPba, msix.pba_offset | msix.bar);
}

void ConfigSpace::add_vital_product_data(const VitalProductData& vpd) {
  assert(vpd_.empty());
  vpd_ = vpd.encode();
  assert(vpd_.size() <= kVpdSizeMax);
  // In the list before the Express capability.
  set8(kVpdAt, kVpdId);
  set8(kVpdAt + 1, kExpressAt);
  set16(kVpdAt + kVpdAddress, 0, 0xffff);
  set32(kVpdAt + kVpdData, 0, 0xffffffff);
  set8(kPowerManagementAt + 1, kVpdAt);
  power_on_ = value_;
}

void ConfigSpace::add_vendor_specific(std::uint8_t length, VendorRegisters& registers) {
  assert(vendor_registers_ == nullptr && length >= kVendorSpecificBody);
  assert(kVendorSpecificAt + length <= kMsiAt);
  vendor_registers_ = &registers;
  // Last in the list.
  set8(kVendorSpecificAt, kVendorSpecificId);
  set8(kVendorSpecificAt + 1, 0);
  set8(kVendorSpecificAt + kVendorSpecificLength, length);
  for (std::uint32_t i = kVendorSpecificBody; i < length; ++i) {
    set8(kVendorSpecificAt + i, 0, 0xff);
  }
  set8(kMsixAt + 1, kVendorSpecificAt);
  registers.reset(vendor_specific());
  power_on_ = value_;
}

void ConfigSpace::begin_list_with(std::uint8_t at) {
  const auto before = [this](std::uint8_t wanted, std::uint8_t from) {
    while (get8(from + 1u) != wanted) from = get8(from + 1u);
    return from;
  };
  const auto first = get8(kCapabilitiesPointer);
  set8(before(0, first) + 1u, first);  // a ring
  set8(before(at, first) + 1u, 0);
  set8(kCapabilitiesPointer, at);
  power_on_ = value_;
}

void ConfigSpace::add_msi(std::uint16_t vectors) {
  static_assert(kMsiAt + kMsiSize <= 0x100);
  assert(!has_msi_ && std::has_single_bit(vectors) && vectors <= Msi::kMaxVectors);
  has_msi_ = true;
  // First in the list.
  set8(kMsiAt, kMsiId);
  set8(kMsiAt + 1, std::to_integer<std::uint8_t>(value_[kCapabilitiesPointer]));
  set8(kCapabilitiesPointer, kMsiAt);
  const auto capable = static_cast<unsigned>(std::countr_zero(vectors));
  set16(kMsiAt + kMsiControl,
        static_cast<std::uint16_t>(kMsi64Bit | kMsiPerVectorMasking |
                                   capable << kMsiMultipleMessageCapable),
        kMsiEnable | kMsiMultipleMessageMask << kMsiMultipleMessageEnable);
  set32(kMsiAt + kMsiAddress, 0, 0xfffffffc);
  set32(kMsiAt + kMsiAddress + 4, 0, 0xffffffff);
  set16(kMsiAt + kMsiData, 0, 0xffff);
  // PCIe 5.0 7.7.1.7: mask bits of vectors that the function does not have are reserved.
  set32(kMsiAt + kMsiMaskBits, 0, static_cast<std::uint32_t>((std::uint64_t{1} << vectors) - 1));
  power_on_ = value_;
}

void ConfigSpace::add_atomic_requester() {
  const auto at = kExpressAt + kDeviceControl2;
  const auto writable = util::load_le16(&writable_[at]) | kAtomicOpRequesterEnable;
  util::store_le16(&writable_[at], static_cast<std::uint16_t>(writable));
}

Msi::Control ConfigSpace::msi_control() const {
  assert(has_msi_);
  const auto control = get16(kMsiAt + kMsiControl);
  return {.enabled = (control & kMsiEnable) != 0,
          .multiple_message_enable = static_cast<std::uint8_t>(
              control >> kMsiMultipleMessageEnable & kMsiMultipleMessageMask),
          .mask_bits = get32(kMsiAt + kMsiMaskBits)};
}

void ConfigSpace::set_msi_pending(std::uint32_t pending) {
  assert(has_msi_);
  util::store_le32(&value_[kMsiAt + kMsiPendingBits], pending);
}

std::span<std::byte> ConfigSpace::vendor_specific() {
  const auto length = value_[kVendorSpecificAt + kVendorSpecificLength];
  return {&value_[kVendorSpecificAt], std::to_integer<std::size_t>(length)};
}

std::uint64_t ConfigSpace::bar_address(unsigned index) const {
  const auto at = kBar0 + index * 4;
  const std::uint64_t low = get32(at) & ~kBarFlags;
  return bars_[index].is_64bit ? low | std::uint64_t{get32(at + 4)} << 32 : low;
}

bool ConfigSpace::memory_enabled() const { return get16(kCommand) & kCommandMemorySpace; }
bool ConfigSpace::bus_master_enabled() const { return get16(kCommand) & kCommandBusMaster; }
bool ConfigSpace::atomic_requests_enabled() const {
  return get16(kExpressAt + kDeviceControl2) & kAtomicOpRequesterEnable;
}
bool ConfigSpace::msix_enabled() const { return get16(kMsixAt + kMsixControl) & kMsixEnable; }
bool ConfigSpace::msix_function_masked() const {
  return get16(kMsixAt + kMsixControl) & kMsixFunctionMask;
}

void ConfigSpace::read(std::uint32_t offset, std::span<std::byte> out) const {
  std::fill(out.begin(), out.end(), std::byte{0});
  if (offset >= kSize) return;
  const auto length = std::min(out.size(), kSize - offset);
  std::copy_n(value_.begin() + offset, length, out.begin());
}

ConfigSpace::Effects ConfigSpace::write(std::uint32_t offset, std::span<const std::byte> in) {
  if (offset >= kSize) return {};
  const auto length = std::min(in.size(), kSize - offset);
  const auto power_state = get16(kPowerManagementAt + kPmControlStatus) & kPmPowerState;
  for (std::size_t i = 0; i < length; ++i) {
    auto& value = value_[offset + i];
    const auto writable = writable_[offset + i];
    value = (value & ~writable) | (in[i] & writable);
    value &= ~(in[i] & clear_on_write_[offset + i]);
  }

  Effects effects;
  const auto pm_status = kPowerManagementAt + kPmControlStatus;
  if (touches(offset, length, pm_status, 2)) {
    // PCIe 5.0 7.5.2.2: a write of an unsupported state completes, "however, the data is
    // discarded and no state change occurs".
    const auto wanted = get16(pm_status) & kPmPowerState;
    if (wanted != kPmD0 && wanted != kPmD3Hot) {
      const auto kept =
          static_cast<std::uint16_t>((get16(pm_status) & ~kPmPowerState) | power_state);
      util::store_le16(&value_[pm_status], kept);
    }
  }
  // The flag is in the upper byte: a write of the lower byte alone is no request yet.
  if (!vpd_.empty() && touches(offset, length, kVpdAt + kVpdAddress + 1, 1)) apply_vpd_address();
  if (vendor_registers_ != nullptr) {
    const auto body = vendor_specific();
    const auto size = static_cast<std::uint32_t>(body.size());
    if (touches(offset, length, kVendorSpecificAt, size)) {
      const auto first = std::max(offset, kVendorSpecificAt);
      const auto end = std::min<std::size_t>(offset + length, kVendorSpecificAt + size);
      vendor_registers_->handle_write(first - kVendorSpecificAt, end - first, body);
    }
  }
  const auto flr_byte = kExpressAt + kDeviceControl + 1;
  if (touches(offset, length, flr_byte, 1)) {
    // PCIe 5.0 7.5.3.4: Initiate Function Level Reset always reads as 0.
    effects.function_level_reset =
        (in[flr_byte - offset] & static_cast<std::byte>(kInitiateFlr >> 8)) != std::byte{0};
  }
  effects.msix_control = touches(offset, length, kMsixAt + kMsixControl, 2);
  effects.msi_control = has_msi_ && touches(offset, length, kMsiAt, kMsiSize);
  return effects;
}

void ConfigSpace::apply_vpd_address() {
  // PCIe 5.0 7.9.19: the host writes an address with F = 0 to read; F becomes 1 when the data is
  // available. With F = 1 it writes, and F becomes 0 when done. This VPD is read-only.
  const auto address = get16(kVpdAt + kVpdAddress);
  if (address & kVpdFlag) {
    util::store_le16(&value_[kVpdAt + kVpdAddress],
                     static_cast<std::uint16_t>(address & ~kVpdFlag));
    return;
  }
  std::array<std::byte, 4> data{};
  for (std::size_t i = 0; i < data.size() && address + i < vpd_.size(); ++i)
    data[i] = vpd_[address + i];
  std::copy(data.begin(), data.end(), &value_[kVpdAt + kVpdData]);
  util::store_le16(&value_[kVpdAt + kVpdAddress], static_cast<std::uint16_t>(address | kVpdFlag));
}

void ConfigSpace::reset() {
  value_ = power_on_;
  if (vendor_registers_ != nullptr) vendor_registers_->reset(vendor_specific());
}

void ConfigSpace::set8(std::uint32_t at, std::uint8_t value, std::uint8_t writable) {
  value_[at] = std::byte{value};
  writable_[at] = std::byte{writable};
}
void ConfigSpace::set16(std::uint32_t at, std::uint16_t value, std::uint16_t writable) {
  util::store_le16(&value_[at], value);
  util::store_le16(&writable_[at], writable);
}
void ConfigSpace::set32(std::uint32_t at, std::uint32_t value, std::uint32_t writable) {
  util::store_le32(&value_[at], value);
  util::store_le32(&writable_[at], writable);
}
void ConfigSpace::clear_on_write16(std::uint32_t at, std::uint16_t bits) {
  util::store_le16(&clear_on_write_[at], bits);
}
std::uint16_t ConfigSpace::get16(std::uint32_t at) const { return util::load_le16(&value_[at]); }
std::uint32_t ConfigSpace::get32(std::uint32_t at) const { return util::load_le32(&value_[at]); }

}  // namespace softhca::pcie
