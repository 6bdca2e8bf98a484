#include "driver/pci.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <optional>

#include "spec/pci/config.h"
#include "spec/pci/registers.h"
#include "util/bits.h"
#include "util/endian.h"

namespace softhca::driver {
namespace {

using spec::pci::bits_of;
using spec::pci::capability_id;
using spec::pci::register_of;
using spec::pci::value_of;
using Header = spec::pci::config_header;
using Capability = spec::pci::capability_header;
using Express = spec::pci::express_capability;
using Msix = spec::pci::msix_capability;
using MsixEntry = spec::pci::msix_table_entry;
using Msi = spec::pci::msi_capability;

constexpr auto kCommand = register_of(Header::bus_master_enable);
constexpr auto kCommandMemorySpace = bits_of(Header::memory_space_enable);
constexpr auto kCommandBusMaster = bits_of(Header::bus_master_enable);

constexpr auto kDeviceControl2 = register_of(Express::atomic_requester_enable);
constexpr auto kAtomicOpRequesterEnable = bits_of(Express::atomic_requester_enable);

constexpr auto kMsixControl = register_of(Msix::enable);
constexpr auto kMsixEnable = bits_of(Msix::enable);
constexpr auto kMsixFunctionMask = bits_of(Msix::function_mask);
constexpr auto kMsixTable = register_of(Msix::table_bar);
constexpr auto kMsixBar = Msix::table_bar.kMax;
constexpr std::uint32_t kMessageAddress = 0xfee00000;

constexpr auto kMsiControl = register_of(Msi::enable);
constexpr auto kMsiEnable = bits_of(Msi::enable);

std::uint16_t read16(Host& host, std::uint32_t offset) {
  std::array<std::byte, 2> bytes{};
  host.read_config(offset, bytes);
  return util::load_le16(bytes.data());
}

std::uint32_t read32(Host& host, std::uint32_t offset) {
  std::array<std::byte, 4> bytes{};
  host.read_config(offset, bytes);
  return util::load_le32(bytes.data());
}

void write32(Host& host, std::uint32_t offset, std::uint32_t value) {
  std::array<std::byte, 4> bytes{};
  util::store_le32(bytes.data(), value);
  host.write_config(offset, bytes);
}

void write16(Host& host, std::uint32_t offset, std::uint16_t value) {
  std::array<std::byte, 2> bytes{};
  util::store_le16(bytes.data(), value);
  host.write_config(offset, bytes);
}

/// Walks the list of capabilities (PCIe 5.0 7.5.3.1).
std::optional<std::uint32_t> find_capability(Host& host, capability_id id) {
  constexpr int kMax = 48;  // the most that fit: a longer list has a loop
  constexpr std::uint32_t kReserved = 3;
  const auto first = read16(host, register_of(Header::capabilities_pointer));
  auto at = util::part_of(first, Header::capabilities_pointer) & ~kReserved;
  for (int i = 0; i < kMax && at != 0; ++i) {
    const auto header = read16(host, at);
    if (util::part_of(header, Capability::id) == static_cast<std::uint32_t>(id)) return at;
    at = util::part_of(header, Capability::next) & ~kReserved;
  }
  return std::nullopt;
}

}  // namespace

PciId read_pci_id(Host& host) {
  return {read16(host, register_of(Header::vendor_id)),
          read16(host, register_of(Header::device_id))};
}

void enable_bus_master(Host& host) {
  const auto command = read16(host, kCommand) | kCommandMemorySpace | kCommandBusMaster;
  write16(host, kCommand, static_cast<std::uint16_t>(command));
}

bool enable_atomic_requests(Host& host) {
  const auto at = find_capability(host, capability_id::EXPRESS);
  if (!at) return false;
  const auto control = read16(host, *at + kDeviceControl2) | kAtomicOpRequesterEnable;
  write16(host, *at + kDeviceControl2, static_cast<std::uint16_t>(control));
  return (read16(host, *at + kDeviceControl2) & kAtomicOpRequesterEnable) != 0;
}

void disable_bus_master(Host& host) {
  const auto command = read16(host, kCommand) & ~kCommandBusMaster;
  write16(host, kCommand, static_cast<std::uint16_t>(command));
}

util::Result<void> enable_msix(Host& host, unsigned count) {
  const auto at = find_capability(host, capability_id::MSIX);
  if (!at) return util::fail("the device has no MSI-X capability");
  const auto control = read16(host, *at + kMsixControl);
  const auto available = value_of(control, Msix::table_size) + 1u;
  if (count > available) {
    return util::fail(
        fmt::format("{} interrupt vectors wanted, the device has {}", count, available));
  }
  const auto table = read32(host, *at + kMsixTable);
  for (unsigned vector = 0; vector < count; ++vector) {
    util::Struct<MsixEntry> entry;
    entry.set(MsixEntry::message_address, kMessageAddress);
    entry.set(MsixEntry::message_data, vector);
    const auto offset = (table & ~kMsixBar) + std::uint64_t{vector} * MsixEntry::kSize;
    host.write_bar(table & kMsixBar, offset, entry.bytes().first(8));
    host.write_bar(table & kMsixBar, offset + 8, entry.bytes().last(8));
  }
  const auto enabled = (control | kMsixEnable) & ~kMsixFunctionMask;
  write16(host, *at + kMsixControl, static_cast<std::uint16_t>(enabled));
  return {};
}

void disable_msix(Host& host) {
  const auto at = find_capability(host, capability_id::MSIX);
  if (!at) return;
  const auto control = read16(host, *at + kMsixControl) & ~kMsixEnable;
  write16(host, *at + kMsixControl, static_cast<std::uint16_t>(control));
}

util::Result<void> enable_msi(Host& host, unsigned count) {
  const auto at = find_capability(host, capability_id::MSI);
  if (!at) return util::fail("the device has no MSI capability");
  const auto control = read16(host, *at + kMsiControl);
  const auto available = 1u << value_of(control, Msi::multiple_message_capable);
  if (count == 0 || count > available) {
    return util::fail(
        fmt::format("{} interrupt vectors wanted, the device has {} by MSI", count, available));
  }
  // The low bits of Message Data are the vector number (7.7.1.2), so the base is 0.
  write32(host, *at + register_of(Msi::message_address), kMessageAddress);
  const bool wide = (control & bits_of(Msi::wide_address)) != 0;
  const std::uint32_t narrower = wide ? 0 : 4;
  if (wide) write32(host, *at + register_of(Msi::upper_address), 0);
  write16(host, *at + register_of(Msi::message_data) - narrower, 0);
  if (control & bits_of(Msi::per_vector_masking)) {
    write32(host, *at + Msi::mask_bits.kOffset - narrower, 0);
  }
  const auto allocated = static_cast<unsigned>(std::bit_width(count - 1));
  const auto cleared = control & ~bits_of(Msi::multiple_message_enable);
  write16(host, *at + kMsiControl,
          static_cast<std::uint16_t>(cleared | bits_of(Msi::multiple_message_enable, allocated) |
                                     kMsiEnable));
  return {};
}

void disable_msi(Host& host) {
  const auto at = find_capability(host, capability_id::MSI);
  if (!at) return;
  const auto control = read16(host, *at + kMsiControl) & ~kMsiEnable;
  write16(host, *at + kMsiControl, static_cast<std::uint16_t>(control));
}

}  // namespace softhca::driver
