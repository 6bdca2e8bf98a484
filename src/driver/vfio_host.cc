#include "driver/vfio_host.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/vfio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <filesystem>
#include <thread>

#include "driver/pci.h"
#include "util/log.h"

namespace softhca::driver {
namespace {

namespace fs = std::filesystem;

/// First bus address: above the interrupt window of x86 (0xfee00000), which no IOMMU maps, and
/// within the 39 bits of the narrowest IOMMUs. Bus addresses are never reused, as in InProcessHost.
constexpr pcie::Iova kFirstVfioIova = pcie::Iova{1} << 32;

/// Last path component of the target of the link at `path`; empty if there is no link.
std::string link_name(const fs::path& path) {
  std::error_code none;
  return fs::read_symlink(path, none).filename().string();
}

/// One access of the size that the caller chose, as on the bus: device memory must not be read
/// bytewise.
template <class T>
void read_as(const std::byte* from, std::span<std::byte> out) {
  const T value = *reinterpret_cast<const volatile T*>(from);
  std::memcpy(out.data(), &value, sizeof value);
}

template <class T>
void write_as(std::byte* to, std::span<const std::byte> in) {
  T value;
  std::memcpy(&value, in.data(), sizeof value);
  *reinterpret_cast<volatile T*>(to) = value;
}

}  // namespace

VfioHost::VfioHost(std::string address)
    : address_(std::move(address)),
      next_iova_(kFirstVfioIova),
      pool_([this](std::size_t size) { return add_arena(size); }) {}

util::Result<std::unique_ptr<VfioHost>> VfioHost::open(const std::string& address) {
  const bool whole = std::count(address.begin(), address.end(), ':') == 2;
  std::unique_ptr<VfioHost> host(new VfioHost(whole ? address : "0000:" + address));
  if (auto ok = host->open_group(); !ok) return tl::unexpected(ok.error());
  if (auto ok = host->open_device(); !ok) return tl::unexpected(ok.error());
  return host;
}

util::Result<void> VfioHost::open_group() {
  const auto directory = fs::path("/sys/bus/pci/devices") / address_;
  if (!fs::exists(directory)) {
    return util::fail(fmt::format("no PCI function {} (lspci -D lists them)", address_));
  }
  const auto group = link_name(directory / "iommu_group");
  if (group.empty()) {
    return util::fail(fmt::format(
        "{} is behind no IOMMU: boot Linux with intel_iommu=on (or amd_iommu=on), on a machine "
        "that has one (QEMU: -device intel-iommu,caching-mode=on)",
        address_));
  }
  const auto driver = link_name(directory / "driver");
  if (driver != "vfio-pci") {
    return util::fail(fmt::format(
        "{0} is bound to {1}, not to vfio-pci: modprobe vfio-pci; {2}echo vfio-pci > "
        "{3}/driver_override; echo {0} > /sys/bus/pci/drivers_probe",
        address_, driver.empty() ? "no driver" : driver,
        driver.empty() ? ""
                       : fmt::format("echo {} > {}/driver/unbind; ", address_, directory.string()),
        directory.string()));
  }
  container_ = os::UniqueFd(::open("/dev/vfio/vfio", O_RDWR | O_CLOEXEC));
  if (!container_) return util::fail_errno("/dev/vfio/vfio (modprobe vfio; are you root?)");
  const auto path = "/dev/vfio/" + group;
  group_ = os::UniqueFd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!group_) return util::fail_errno(path + " (does another program use the function?)");
  vfio_group_status status{.argsz = sizeof status, .flags = 0};
  if (::ioctl(group_.get(), VFIO_GROUP_GET_STATUS, &status) != 0) return util::fail_errno(path);
  if ((status.flags & VFIO_GROUP_FLAGS_VIABLE) == 0) {
    return util::fail(
        fmt::format("IOMMU group {0} of {1} has functions that a kernel driver holds: bind all of "
                    "/sys/kernel/iommu_groups/{0}/devices to vfio-pci",
                    group, address_));
  }
  int container = container_.get();
  if (::ioctl(group_.get(), VFIO_GROUP_SET_CONTAINER, &container) != 0)
    return util::fail_errno(path);
  if (::ioctl(container, VFIO_SET_IOMMU, VFIO_TYPE1v2_IOMMU) != 0) {
    return util::fail_errno("VFIO with an IOMMU of type 1 (modprobe vfio_iommu_type1)");
  }
  return {};
}

util::Result<void> VfioHost::open_device() {
  const int device = ::ioctl(group_.get(), VFIO_GROUP_GET_DEVICE_FD, address_.c_str());
  if (device < 0) return util::fail_errno("VFIO function " + address_);
  device_ = os::UniqueFd(device);
  auto config = region(VFIO_PCI_CONFIG_REGION_INDEX, false);
  if (!config) return tl::unexpected(config.error());
  config_ = *config;
  // Starts from a known state.
  (void)::ioctl(device, VFIO_DEVICE_RESET);
  for (unsigned bar = 0; bar < kBars; ++bar) {
    auto mapped = region(VFIO_PCI_BAR0_REGION_INDEX + bar, true);
    if (!mapped) return tl::unexpected(mapped.error());
    bars_[bar] = *mapped;
  }
  return {};
}

util::Result<VfioHost::Region> VfioHost::region(std::uint32_t index, bool map) {
  vfio_region_info info{};
  info.argsz = sizeof info;
  info.index = index;
  const auto what = fmt::format("region {} of {}", index, address_);
  if (::ioctl(device_.get(), VFIO_DEVICE_GET_REGION_INFO, &info) != 0)
    return util::fail_errno(what);
  Region found{.size = info.size, .offset = info.offset, .memory = nullptr};
  if (!map || found.size == 0 || (info.flags & VFIO_REGION_INFO_FLAG_MMAP) == 0) return found;
  void* memory = ::mmap(nullptr, found.size, PROT_READ | PROT_WRITE, MAP_SHARED, device_.get(),
                        static_cast<off_t>(found.offset));
  if (memory == MAP_FAILED) return util::fail_errno("mapping " + what);
  found.memory = static_cast<std::byte*>(memory);
  return found;
}

VfioHost::~VfioHost() {
  if (device_) (void)::ioctl(device_.get(), VFIO_DEVICE_RESET);
  for (const auto& bar : bars_) {
    if (bar.memory != nullptr) ::munmap(bar.memory, bar.size);
  }
  // Before the pages are unmapped: closing the last descriptor removes them from the IOMMU.
  device_.reset();
  group_.reset();
  container_.reset();
  for (const auto& arena : arenas_) ::munmap(arena.memory, arena.size);
}

void VfioHost::read_config(std::uint32_t offset, std::span<std::byte> out) {
  const auto at = static_cast<off_t>(config_.offset + offset);
  if (::pread(device_.get(), out.data(), out.size(), at) != static_cast<ssize_t>(out.size())) {
    std::fill(out.begin(), out.end(), std::byte{0xff});  // as the bus returns for a lost function
  }
}

void VfioHost::write_config(std::uint32_t offset, std::span<const std::byte> in) {
  const auto at = static_cast<off_t>(config_.offset + offset);
  if (::pwrite(device_.get(), in.data(), in.size(), at) != static_cast<ssize_t>(in.size())) {
    util::log(util::LogLevel::kWarning, "{}: a write to configuration space at {:#x} failed",
              address_, offset);
  }
}

void VfioHost::read_bar(unsigned bar, std::uint64_t offset, std::span<std::byte> out) {
  const auto& region = bars_.at(bar);
  assert(offset + out.size() <= region.size);
  if (region.memory == nullptr) {
    const auto at = static_cast<off_t>(region.offset + offset);
    if (::pread(device_.get(), out.data(), out.size(), at) != static_cast<ssize_t>(out.size())) {
      std::fill(out.begin(), out.end(), std::byte{0xff});
    }
    return;
  }
  const auto* from = region.memory + offset;
  switch (out.size()) {
    case 1:
      return read_as<std::uint8_t>(from, out);
    case 2:
      return read_as<std::uint16_t>(from, out);
    case 4:
      return read_as<std::uint32_t>(from, out);
    default:
      assert(out.size() == 8);
      return read_as<std::uint64_t>(from, out);
  }
}

void VfioHost::write_bar(unsigned bar, std::uint64_t offset, std::span<const std::byte> in) {
  const auto& region = bars_.at(bar);
  assert(offset + in.size() <= region.size);
  if (region.memory == nullptr) {
    const auto at = static_cast<off_t>(region.offset + offset);
    if (::pwrite(device_.get(), in.data(), in.size(), at) != static_cast<ssize_t>(in.size())) {
      util::log(util::LogLevel::kWarning, "{}: a write to BAR {} at {:#x} failed", address_, bar,
                offset);
    }
    return;
  }
  // Orders the doorbell after earlier writes to memory.
  __atomic_thread_fence(__ATOMIC_RELEASE);
  auto* to = region.memory + offset;
  switch (in.size()) {
    case 1:
      return write_as<std::uint8_t>(to, in);
    case 2:
      return write_as<std::uint16_t>(to, in);
    case 4:
      return write_as<std::uint32_t>(to, in);
    default:
      assert(in.size() == 8);
      return write_as<std::uint64_t>(to, in);
  }
}

util::Result<void> VfioHost::map_dma(const DmaRegion& region) {
  vfio_iommu_type1_dma_map request{};
  request.argsz = sizeof request;
  request.flags = VFIO_DMA_MAP_FLAG_READ | VFIO_DMA_MAP_FLAG_WRITE;
  request.vaddr = reinterpret_cast<std::uintptr_t>(region.bytes.data());
  request.iova = region.iova;
  request.size = region.bytes.size();
  if (::ioctl(container_.get(), VFIO_IOMMU_MAP_DMA, &request) != 0) {
    return util::fail_errno(fmt::format(
        "VFIO: pinning {} bytes of memory (ulimit -l allows too little?)", region.bytes.size()));
  }
  return {};
}

void VfioHost::unmap_dma(const DmaRegion& region) {
  vfio_iommu_type1_dma_unmap request{};
  request.argsz = sizeof request;
  request.iova = region.iova;
  request.size = region.bytes.size();
  [[maybe_unused]] const int unmapped = ::ioctl(container_.get(), VFIO_IOMMU_UNMAP_DMA, &request);
  assert(unmapped == 0 && "a mapping of map_dma()");
}

util::Result<DmaRegion> VfioHost::add_arena(std::size_t size) {
  // Uses large pages on both sides if the kernel has some: an IOMMU needs one entry for each, and
  // an emulated IOMMU reports each.
  constexpr auto kLarge = DmaPool::kArenaSize;
  size = round_up(size, kLarge);
  const auto with_margin = size + kLarge;
  void* mapped_at =
      ::mmap(nullptr, with_margin, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped_at == MAP_FAILED) return util::fail_errno(fmt::format("{} bytes of DMA memory", size));
  const auto begin = reinterpret_cast<std::uintptr_t>(mapped_at);
  const auto before = round_up(begin, kLarge) - begin;
  auto* memory = static_cast<std::byte*>(mapped_at) + before;
  if (before != 0) ::munmap(mapped_at, before);
  if (before != kLarge) ::munmap(memory + size, kLarge - before);
  (void)::madvise(memory, size, MADV_HUGEPAGE);
  const DmaRegion region{{memory, size}, next_iova_};
  if (auto mapped = map_dma(region); !mapped) {
    ::munmap(memory, size);
    return tl::unexpected(mapped.error());
  }
  arenas_.push_back({region.bytes.data(), size});
  next_iova_ += size;
  return region;
}

util::Result<DmaRegion> VfioHost::map(std::span<std::byte> bytes) {
  if (bytes.empty()) return util::fail("DMA mapping of 0 bytes");
  const auto skip = reinterpret_cast<std::uintptr_t>(bytes.data()) % kPageSize;
  const auto size = round_up(skip + bytes.size(), kPageSize);
  const DmaRegion region{{bytes.data() - skip, size}, next_iova_};
  if (auto mapped = map_dma(region); !mapped) return tl::unexpected(mapped.error());
  // An unmapped page follows each mapping, so that an access beyond its end fails.
  next_iova_ = round_up(next_iova_ + size + kPageSize, DmaPool::kArenaSize);
  return region;
}

void VfioHost::unmap(const DmaRegion& region) { unmap_dma(region); }

util::Result<void> VfioHost::enable_interrupts(unsigned count) {
  vfio_irq_info info{};
  info.argsz = sizeof info;
  info.index = VFIO_PCI_MSIX_IRQ_INDEX;
  if (::ioctl(device_.get(), VFIO_DEVICE_GET_IRQ_INFO, &info) != 0)
    return util::fail_errno("MSI-X of " + address_);
  if (count > info.count) {
    return util::fail(
        fmt::format("{} interrupt vectors wanted, the device has {}", count, info.count));
  }
  auto interrupts = EventfdInterrupts::create(count);
  if (!interrupts) return tl::unexpected(interrupts.error());
  interrupts_ = *std::move(interrupts);
  // VFIO sets up the function's MSI-X table and enables MSI-X.
  const auto fds = interrupts_.fds();
  std::vector<std::byte> request(sizeof(vfio_irq_set) + fds.size() * sizeof(int));
  const vfio_irq_set head{.argsz = static_cast<std::uint32_t>(request.size()),
                          .flags = VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER,
                          .index = VFIO_PCI_MSIX_IRQ_INDEX,
                          .start = 0,
                          .count = count};
  std::memcpy(request.data(), &head, sizeof head);
  std::memcpy(request.data() + sizeof head, fds.data(), fds.size() * sizeof(int));
  if (::ioctl(device_.get(), VFIO_DEVICE_SET_IRQS, request.data()) != 0)
    return util::fail_errno(fmt::format("enabling {} MSI-X vectors of {}", count, address_));
  return {};
}

void VfioHost::disable_interrupts() {
  vfio_irq_set request{};
  request.argsz = sizeof request;
  request.flags = VFIO_IRQ_SET_DATA_NONE | VFIO_IRQ_SET_ACTION_TRIGGER;
  request.index = VFIO_PCI_MSIX_IRQ_INDEX;
  (void)::ioctl(device_.get(), VFIO_DEVICE_SET_IRQS, &request);
}

void VfioHost::wait_interrupt(unsigned vector, util::Time until) {
  interrupts_.wait(vector, -1, until);
}

void VfioHost::progress() { std::this_thread::yield(); }

}  // namespace softhca::driver
