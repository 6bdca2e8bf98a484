// The Host of a PCI function of this machine, through Linux VFIO behind an IOMMU: the device
// reaches only the memory that is mapped for it. The function must be bound to vfio-pci:
//
//   modprobe vfio-pci
//   echo vfio-pci > /sys/bus/pci/devices/0000:01:00.0/driver_override
//   echo 0000:01:00.0 > /sys/bus/pci/drivers_probe
#pragma once

#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "driver/dma_pool.h"
#include "driver/eventfd_interrupts.h"
#include "driver/host.h"
#include "os/unique_fd.h"

namespace softhca::driver {

class VfioHost final : public Host {
 public:
  /// Opens the function at `address` (0000:01:00.0, or 01:00.0). The error says what to do.
  static util::Result<std::unique_ptr<VfioHost>> open(const std::string& address);
  /// Resets the function and unmaps its memory.
  ~VfioHost() override;

  void read_config(std::uint32_t offset, std::span<std::byte> out) override;
  void write_config(std::uint32_t offset, std::span<const std::byte> in) override;
  void read_bar(unsigned bar, std::uint64_t offset, std::span<std::byte> out) override;
  void write_bar(unsigned bar, std::uint64_t offset, std::span<const std::byte> in) override;

  util::Result<DmaRegion> allocate(std::size_t size) override { return pool_.allocate(size); }
  void free(const DmaRegion& region) override { pool_.free(region); }
  /// Pins the pages.
  util::Result<DmaRegion> map(std::span<std::byte> bytes) override;
  void unmap(const DmaRegion& region) override;

  util::Result<void> enable_interrupts(unsigned count) override;
  void disable_interrupts() override;
  std::uint64_t interrupts(unsigned vector) const override { return interrupts_.signaled(vector); }
  void wait_interrupt(unsigned vector, util::Time until) override;

  void progress() override;
  util::Time now() const override { return util::monotonic_now(); }

 private:
  static constexpr unsigned kBars = 6;

  /// A region of the device's file, and its mapping.
  struct Region {
    std::uint64_t size = 0;
    std::uint64_t offset = 0;
    std::byte* memory = nullptr;
  };
  struct Arena {
    std::byte* memory;
    std::size_t size;
  };

  explicit VfioHost(std::string address);
  util::Result<void> open_group();
  util::Result<void> open_device();
  util::Result<Region> region(std::uint32_t index, bool map);
  util::Result<DmaRegion> add_arena(std::size_t size);
  util::Result<void> map_dma(const DmaRegion& region);
  void unmap_dma(const DmaRegion& region);

  std::string address_;
  os::UniqueFd container_;
  os::UniqueFd group_;
  os::UniqueFd device_;
  std::array<Region, kBars> bars_;
  Region config_;
  mutable EventfdInterrupts interrupts_;
  std::vector<Arena> arenas_;
  pcie::Iova next_iova_;
  DmaPool pool_;
};

}  // namespace softhca::driver
