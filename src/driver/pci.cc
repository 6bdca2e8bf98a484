#include "driver/pci.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <optional>

#include "util/endian.h"

namespace softhca::driver {
namespace {

constexpr std::uint32_t kVendorId = 0x00;
constexpr std::uint32_t kDeviceId = 0x02;
constexpr std::uint32_t kCommand = 0x04;
constexpr std::uint16_t kCommandMemorySpace = 1u << 1;
constexpr std::uint16_t kCommandBusMaster = 1u << 2;
constexpr std::uint32_t kCapabilitiesPointer = 0x34;

// PCI Express capability: PCIe 5.0 7.5.3.
constexpr std::uint8_t kExpressId = 0x10;
constexpr std::uint32_t kDeviceControl2 = 0x28;
constexpr std::uint16_t kAtomicOpRequesterEnable = 1u << 6;

// MSI-X capability: PCIe 5.0 7.7.2.
constexpr std::uint8_t kMsixId = 0x11;
constexpr std::uint32_t kMsixControl = 2;
constexpr std::uint16_t kMsixEnable = 1u << 15;
constexpr std::uint16_t kMsixFunctionMask = 1u << 14;
constexpr std::uint16_t kMsixTableSize = 0x7ff;  ///< vectors - 1
constexpr std::uint32_t kMsixTable = 4;
constexpr std::uint32_t kMsixBar = 0x7;
constexpr std::uint32_t kMsixEntrySize = 16;
constexpr std::uint32_t kMessageAddress = 0xfee00000;

// MSI capability: PCIe 5.0 7.7.1.
constexpr std::uint8_t kMsiId = 0x05;
constexpr std::uint32_t kMsiControl = 2;
constexpr std::uint16_t kMsiEnable = 1u << 0;
constexpr unsigned kMsiMultipleMessageCapable = 1;
constexpr unsigned kMsiMultipleMessageEnable = 4;
constexpr std::uint16_t kMsiMultipleMessageMask = 0b111;
constexpr std::uint16_t kMsi64Bit = 1u << 7;
constexpr std::uint16_t kMsiPerVectorMasking = 1u << 8;
constexpr std::uint32_t kMsiAddress = 4;
constexpr std::uint32_t kMsiMaskBits64 = 0x10;

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
std::optional<std::uint32_t> find_capability(Host& host, std::uint8_t id) {
  constexpr int kMax = 48;  // the most that fit: a longer list has a loop
  auto at = static_cast<std::uint32_t>(read16(host, kCapabilitiesPointer) & 0xfc);
  for (int i = 0; i < kMax && at != 0; ++i) {
    const auto header = read16(host, at);
    if ((header & 0xff) == id) return at;
    at = header >> 8 & 0xfc;
  }
  return std::nullopt;
}

}  // namespace

PciId read_pci_id(Host& host) { return {read16(host, kVendorId), read16(host, kDeviceId)}; }

void enable_bus_master(Host& host) {
  const auto command = read16(host, kCommand) | kCommandMemorySpace | kCommandBusMaster;
  write16(host, kCommand, static_cast<std::uint16_t>(command));
}

bool enable_atomic_requests(Host& host) {
  const auto at = find_capability(host, kExpressId);
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
  const auto at = find_capability(host, kMsixId);
  if (!at) return util::fail("the device has no MSI-X capability");
  const auto control = read16(host, *at + kMsixControl);
  const auto available = (control & kMsixTableSize) + 1u;
  if (count > available) {
    return util::fail(
        fmt::format("{} interrupt vectors wanted, the device has {}", count, available));
  }
  const auto table = read32(host, *at + kMsixTable);
  for (unsigned vector = 0; vector < count; ++vector) {
    // Message Address, Upper Address, Data, Vector Control with a clear Mask bit (7.7.2.5).
    std::array<std::byte, kMsixEntrySize> entry{};
    util::store_le64(entry.data(), kMessageAddress);
    util::store_le32(entry.data() + 8, vector);
    const auto offset = (table & ~kMsixBar) + std::uint64_t{vector} * kMsixEntrySize;
    host.write_bar(table & kMsixBar, offset, std::span(entry).first(8));
    host.write_bar(table & kMsixBar, offset + 8, std::span(entry).last(8));
  }
  const auto enabled = (control | kMsixEnable) & ~kMsixFunctionMask;
  write16(host, *at + kMsixControl, static_cast<std::uint16_t>(enabled));
  return {};
}

void disable_msix(Host& host) {
  const auto at = find_capability(host, kMsixId);
  if (!at) return;
  const auto control = read16(host, *at + kMsixControl) & ~kMsixEnable;
  write16(host, *at + kMsixControl, static_cast<std::uint16_t>(control));
}

util::Result<void> enable_msi(Host& host, unsigned count) {
  const auto at = find_capability(host, kMsiId);
  if (!at) return util::fail("the device has no MSI capability");
  const auto control = read16(host, *at + kMsiControl);
  const auto available = 1u << (control >> kMsiMultipleMessageCapable & kMsiMultipleMessageMask);
  if (count == 0 || count > available) {
    return util::fail(
        fmt::format("{} interrupt vectors wanted, the device has {} by MSI", count, available));
  }
  // The low bits of Message Data are the vector number (7.7.1.2), so the base is 0.
  write32(host, *at + kMsiAddress, kMessageAddress);
  const bool wide = (control & kMsi64Bit) != 0;
  if (wide) write32(host, *at + kMsiAddress + 4, 0);
  write16(host, *at + (wide ? 0x0c : 0x08), 0);
  if (control & kMsiPerVectorMasking) {
    write32(host, *at + (wide ? kMsiMaskBits64 : kMsiMaskBits64 - 4), 0);
  }
  const auto allocated = static_cast<unsigned>(std::bit_width(count - 1));
  const auto cleared = control & ~(kMsiMultipleMessageMask << kMsiMultipleMessageEnable);
  write16(
      host, *at + kMsiControl,
      static_cast<std::uint16_t>(cleared | allocated << kMsiMultipleMessageEnable | kMsiEnable));
  return {};
}

void disable_msi(Host& host) {
  const auto at = find_capability(host, kMsiId);
  if (!at) return;
  const auto control = read16(host, *at + kMsiControl) & ~kMsiEnable;
  write16(host, *at + kMsiControl, static_cast<std::uint16_t>(control));
}

}  // namespace softhca::driver
