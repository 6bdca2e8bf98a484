#include "pcie/config_space.h"

#include <algorithm>
#include <bit>
#include <cassert>

#include "spec/pci/registers.h"
#include "util/bits.h"
#include "util/endian.h"

namespace softhca::pcie {
namespace {

using spec::pci::byte_of;
using spec::pci::capability_id;
using spec::pci::register_of;
using Header = spec::pci::config_header;
using BaseAddress = spec::pci::base_address;
using Capability = spec::pci::capability_header;
using PowerManagement = spec::pci::power_management_capability;
using Vpd = spec::pci::vpd_capability;
using VendorSpecific = spec::pci::vendor_specific_capability;
using Express = spec::pci::express_capability;
using MsixCapability = spec::pci::msix_capability;
using MsiCapability = spec::pci::msi_capability;

constexpr std::uint32_t kHeaderAt = 0;
constexpr std::uint32_t kBarsAt = Header::bars.kOffset;
constexpr std::uint32_t kMemory64 = 2;
constexpr std::uint32_t kPmVersion3 = 3;
constexpr std::uint32_t kPmD3Hot = 3;
constexpr std::size_t kVpdSizeMax = 0x8000;
constexpr std::uint32_t kVendorSpecificBody = byte_of(VendorSpecific::length) + 1;

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
  set(kHeaderAt, Header::vendor_id, identity.vendor_id);
  set(kHeaderAt, Header::device_id, identity.device_id);
  // Interrupt Disable may be 0 without a legacy interrupt (PCIe 5.0 7.5.1.1.3).
  set(kHeaderAt, Header::memory_space_enable, 0, 1);
  set(kHeaderAt, Header::bus_master_enable, 0, 1);
  set(kHeaderAt, Header::parity_error_response, 0, 1);
  set(kHeaderAt, Header::serr_enable, 0, 1);
  set(kHeaderAt, Header::capabilities_list, 1);
  clear_on_write(kHeaderAt, Header::master_data_parity_error);
  clear_on_write(kHeaderAt, Header::errors);
  set(kHeaderAt, Header::revision_id, identity.revision_id);
  set(kHeaderAt, Header::class_code, identity.class_code);
  set(kHeaderAt, Header::cache_line_size, 0, Header::cache_line_size.kMax);
  set(kHeaderAt, Header::subsystem_vendor_id, identity.subsystem_vendor_id);
  set(kHeaderAt, Header::subsystem_id, identity.subsystem_id);
  set(kHeaderAt, Header::capabilities_pointer, kPowerManagementAt);
  // Interrupt Pin stays 0: the functions have no legacy interrupt.
  set(kHeaderAt, Header::interrupt_line, 0, Header::interrupt_line.kMax);
}

void ConfigSpace::build_bars() {
  for (unsigned index = 0; index < kBarCount; ++index) {
    const auto& bar = bars_[index];
    if (bar.size == 0) continue;
    assert(std::has_single_bit(bar.size) && bar.size >= 16);
    assert(bar.is_64bit || bar.size <= 1u << 31);
    const auto at = kBarsAt + index * 4;
    set(at, BaseAddress::memory_type, bar.is_64bit ? kMemory64 : 0);
    set(at, BaseAddress::prefetchable, bar.prefetchable);
    // PCIe 5.0 7.5.1.2.1: address bits below the size are hardwired to 0, so that a host that
    // writes all ones reads back the size.
    const auto writable = ~(bar.size - 1);
    set(at, BaseAddress::address, 0,
        util::part_of(static_cast<std::uint32_t>(writable), BaseAddress::address));
    if (!bar.is_64bit) continue;
    assert(index + 1 < kBarCount && bars_[index + 1].size == 0);
    // no format: the upper half of a number
    util::store_le32(&writable_[at + 4], static_cast<std::uint32_t>(writable >> 32));
    ++index;
  }
}

void ConfigSpace::begin_capability(std::uint32_t at, spec::pci::capability_id id,
                                   std::uint8_t next) {
  set(at, Capability::id, static_cast<std::uint32_t>(id));
  set(at, Capability::next, next);
}

void ConfigSpace::build_power_management(std::uint8_t next) {
  const auto at = kPowerManagementAt;
  begin_capability(at, capability_id::POWER_MANAGEMENT, next);
  set(at, PowerManagement::version, kPmVersion3);
  // No_Soft_Reset: a transition through D3hot keeps the device's state.
  set(at, PowerManagement::no_soft_reset, 1);
  set(at, PowerManagement::power_state, kPmD0, PowerManagement::power_state.kMax);
}

void ConfigSpace::build_express(std::uint8_t next) {
  const auto at = kExpressAt;
  const auto set_writable = [&](auto... field) { (set(at, field, 0, field.kMax), ...); };
  begin_capability(at, capability_id::EXPRESS, next);
  set(at, Express::version, 2);
  constexpr std::uint32_t k512Bytes = 2;
  set(at, Express::max_payload_supported, k512Bytes);
  set(at, Express::extended_tag_supported, 1);
  set(at, Express::role_based_errors, 1);
  set(at, Express::flr_capable, 1);
  set(at, Express::relaxed_ordering, 1, 1);
  set(at, Express::no_snoop, 1, 1);
  set(at, Express::max_read_request_size, k512Bytes, Express::max_read_request_size.kMax);
  set_writable(Express::error_reporting, Express::max_payload_size, Express::extended_tag,
               Express::phantom_functions, Express::aux_power);
  clear_on_write(at, Express::errors_detected);
  constexpr std::uint32_t kSpeed8GT = 3, kWidth16 = 16;
  set(at, Express::max_link_speed, kSpeed8GT);
  set(at, Express::max_link_width, kWidth16);
  set_writable(Express::aspm, Express::read_completion_boundary, Express::common_clock,
               Express::extended_synch, Express::clock_power_management,
               Express::autonomous_width_disable, Express::bandwidth_interrupts);
  set(at, Express::link_speed, kSpeed8GT);
  set(at, Express::link_width, kWidth16);
  set(at, Express::slot_clock, 1);
  constexpr std::uint32_t kTimeoutRangesABCD = 0xf;
  set(at, Express::timeout_ranges_supported, kTimeoutRangesABCD);
  set(at, Express::timeout_disable_supported, 1);
  set_writable(Express::timeout_value, Express::timeout_disable);
  constexpr std::uint32_t kSpeeds2_5To8GT = 0b111;
  set(at, Express::link_speeds_supported, kSpeeds2_5To8GT);
  set(at, Express::target_link_speed, kSpeed8GT, Express::target_link_speed.kMax);
}

void ConfigSpace::build_msix(const Msix::Layout& msix) {
  const auto at = kMsixAt;
  assert(msix.bar < kBarCount);
  assert(std::uint64_t{msix.table_offset} + msix.table_size() <= bars_[msix.bar].size);
  assert(std::uint64_t{msix.pba_offset} + msix.pba_size() <= bars_[msix.bar].size);
  begin_capability(at, capability_id::MSIX, 0);
  set(at, MsixCapability::table_size, msix.vectors - 1u);
  set(at, MsixCapability::function_mask, 0, 1);
  set(at, MsixCapability::enable, 0, 1);
  set(at, MsixCapability::table_bar, msix.bar);
  set(at, MsixCapability::table_offset,
      util::part_of(msix.table_offset, MsixCapability::table_offset));
  set(at, MsixCapability::pba_bar, msix.bar);
  set(at, MsixCapability::pba_offset, util::part_of(msix.pba_offset, MsixCapability::pba_offset));
}

void ConfigSpace::add_vital_product_data(const VitalProductData& vpd) {
  assert(vpd_.empty());
  vpd_ = vpd.encode();
  assert(vpd_.size() <= kVpdSizeMax);
  // In the list before the Express capability.
  begin_capability(kVpdAt, capability_id::VITAL_PRODUCT_DATA, kExpressAt);
  set(kVpdAt, Vpd::address, 0, Vpd::address.kMax);
  set(kVpdAt, Vpd::flag, 0, 1);
  set(kVpdAt, Vpd::data, 0, Vpd::data.kMax);
  set(kPowerManagementAt, Capability::next, kVpdAt);
  power_on_ = value_;
}

void ConfigSpace::add_vendor_specific(std::uint8_t length, VendorRegisters& registers) {
  assert(vendor_registers_ == nullptr && length >= kVendorSpecificBody);
  assert(kVendorSpecificAt + length <= kMsiAt);
  vendor_registers_ = &registers;
  // Last in the list.
  begin_capability(kVendorSpecificAt, capability_id::VENDOR_SPECIFIC, 0);
  set(kVendorSpecificAt, VendorSpecific::length, length);
  for (std::uint32_t i = kVendorSpecificBody; i < length; ++i) {
    value_[kVendorSpecificAt + i] = std::byte{0};
    writable_[kVendorSpecificAt + i] = std::byte{0xff};
  }
  set(kMsixAt, Capability::next, kVendorSpecificAt);
  registers.reset(vendor_specific());
  power_on_ = value_;
}

void ConfigSpace::begin_list_with(std::uint8_t at) {
  const auto before = [this](std::uint32_t wanted, std::uint32_t from) {
    while (get(from, Capability::next) != wanted) from = get(from, Capability::next);
    return from;
  };
  const auto first = get(kHeaderAt, Header::capabilities_pointer);
  set(before(0, first), Capability::next, first);  // a ring
  set(before(at, first), Capability::next, 0);
  set(kHeaderAt, Header::capabilities_pointer, at);
  power_on_ = value_;
}

void ConfigSpace::add_msi(std::uint16_t vectors) {
  static_assert(kMsiAt + MsiCapability::kSize <= 0x100);
  assert(!has_msi_ && std::has_single_bit(vectors) && vectors <= Msi::kMaxVectors);
  has_msi_ = true;
  // First in the list.
  begin_capability(kMsiAt, capability_id::MSI,
                   static_cast<std::uint8_t>(get(kHeaderAt, Header::capabilities_pointer)));
  set(kHeaderAt, Header::capabilities_pointer, kMsiAt);
  set(kMsiAt, MsiCapability::wide_address, 1);
  set(kMsiAt, MsiCapability::per_vector_masking, 1);
  set(kMsiAt, MsiCapability::multiple_message_capable,
      static_cast<std::uint32_t>(std::countr_zero(vectors)));
  const auto set_writable = [&](auto... field) { (set(kMsiAt, field, 0, field.kMax), ...); };
  set_writable(MsiCapability::enable, MsiCapability::multiple_message_enable,
               MsiCapability::message_address, MsiCapability::upper_address,
               MsiCapability::message_data);
  // PCIe 5.0 7.7.1.7: mask bits of vectors that the function does not have are reserved.
  set(kMsiAt, MsiCapability::mask_bits, 0,
      static_cast<std::uint32_t>((std::uint64_t{1} << vectors) - 1));
  power_on_ = value_;
}

void ConfigSpace::add_atomic_requester() {
  Express::atomic_requester_enable.write(&writable_[kExpressAt], 1);
}

Msi::MessageControl ConfigSpace::msi_control() const {
  assert(has_msi_);
  return {.enabled = get(kMsiAt, MsiCapability::enable) != 0,
          .multiple_message_enable =
              static_cast<std::uint8_t>(get(kMsiAt, MsiCapability::multiple_message_enable)),
          .mask_bits = get(kMsiAt, MsiCapability::mask_bits)};
}

void ConfigSpace::set_msi_pending(std::uint32_t pending) {
  assert(has_msi_);
  MsiCapability::pending_bits.write(&value_[kMsiAt], pending);
}

std::span<std::byte> ConfigSpace::vendor_specific() {
  return {&value_[kVendorSpecificAt], get(kVendorSpecificAt, VendorSpecific::length)};
}

std::uint64_t ConfigSpace::bar_address(unsigned index) const {
  const auto at = kBarsAt + index * 4;
  const std::uint64_t low = util::in_place(BaseAddress::address, get(at, BaseAddress::address));
  // no format: joins two words
  return bars_[index].is_64bit ? low | std::uint64_t{util::load_le32(&value_[at + 4])} << 32 : low;
}

bool ConfigSpace::memory_enabled() const {
  return get(kHeaderAt, Header::memory_space_enable) != 0;
}
bool ConfigSpace::bus_master_enabled() const {
  return get(kHeaderAt, Header::bus_master_enable) != 0;
}
bool ConfigSpace::atomic_requests_enabled() const {
  return get(kExpressAt, Express::atomic_requester_enable) != 0;
}
bool ConfigSpace::msix_enabled() const { return get(kMsixAt, MsixCapability::enable) != 0; }
bool ConfigSpace::msix_function_masked() const {
  return get(kMsixAt, MsixCapability::function_mask) != 0;
}

void ConfigSpace::read(std::uint32_t offset, std::span<std::byte> out) const {
  std::fill(out.begin(), out.end(), present_ ? std::byte{0} : std::byte{0xff});
  if (!present_ || offset >= kSize) return;
  const auto length = std::min(out.size(), kSize - offset);
  std::copy_n(value_.begin() + offset, length, out.begin());
}

ConfigSpace::Effects ConfigSpace::write(std::uint32_t offset, std::span<const std::byte> in) {
  if (!present_ || offset >= kSize) return {};
  const auto length = std::min(in.size(), kSize - offset);
  const auto power_state = get(kPowerManagementAt, PowerManagement::power_state);
  for (std::size_t i = 0; i < length; ++i) {
    auto& value = value_[offset + i];
    const auto writable = writable_[offset + i];
    value = (value & ~writable) | (in[i] & writable);
    value &= ~(in[i] & clear_on_write_[offset + i]);
  }

  Effects effects;
  const auto pm_status = kPowerManagementAt + register_of(PowerManagement::power_state);
  if (touches(offset, length, pm_status, 2)) {
    // PCIe 5.0 7.5.2.2: a write of an unsupported state completes, "however, the data is
    // discarded and no state change occurs".
    const auto wanted = get(kPowerManagementAt, PowerManagement::power_state);
    if (wanted != kPmD0 && wanted != kPmD3Hot) {
      PowerManagement::power_state.write(&value_[kPowerManagementAt], power_state);
    }
  }
  // The flag is in the upper byte: a write of the lower byte alone is no request yet.
  if (!vpd_.empty() && touches(offset, length, kVpdAt + byte_of(Vpd::flag), 1)) apply_vpd_address();
  if (vendor_registers_ != nullptr) {
    const auto body = vendor_specific();
    const auto size = static_cast<std::uint32_t>(body.size());
    if (touches(offset, length, kVendorSpecificAt, size)) {
      const auto first = std::max(offset, kVendorSpecificAt);
      const auto end = std::min<std::size_t>(offset + length, kVendorSpecificAt + size);
      vendor_registers_->handle_write(first - kVendorSpecificAt, end - first, body);
    }
  }
  const auto flr_byte = kExpressAt + byte_of(Express::initiate_flr);
  if (touches(offset, length, flr_byte, 1)) {
    // PCIe 5.0 7.5.3.4: Initiate Function Level Reset always reads as 0.
    effects.function_level_reset = util::has_bit(
        std::to_integer<std::uint8_t>(in[flr_byte - offset]), Express::initiate_flr.kLo % 8);
  }
  effects.msix_control = touches(offset, length, kMsixAt + register_of(MsixCapability::enable), 2);
  effects.msi_control = has_msi_ && touches(offset, length, kMsiAt, MsiCapability::kSize);
  return effects;
}

void ConfigSpace::apply_vpd_address() {
  // PCIe 5.0 7.9.19: the host writes an address with F = 0 to read; F becomes 1 when the data is
  // available. With F = 1 it writes, and F becomes 0 when done. This VPD is read-only.
  const auto address = get(kVpdAt, Vpd::address);
  if (get(kVpdAt, Vpd::flag) != 0) {
    Vpd::flag.write(&value_[kVpdAt], 0);
    return;
  }
  std::array<std::byte, 4> data{};
  for (std::size_t i = 0; i < data.size() && address + i < vpd_.size(); ++i)
    data[i] = vpd_[address + i];
  std::copy(data.begin(), data.end(), &value_[kVpdAt + Vpd::data.kOffset]);
  Vpd::flag.write(&value_[kVpdAt], 1);
}

void ConfigSpace::reset() {
  value_ = power_on_;
  if (!present_) {
    decltype(PowerManagement::power_state)::write(&value_[kPowerManagementAt], kPmD3hot);
  }
  if (vendor_registers_ != nullptr) vendor_registers_->reset(vendor_specific());
}

}  // namespace softhca::pcie
