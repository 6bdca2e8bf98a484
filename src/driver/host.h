// The interface between a driver and its device: configuration space, BARs, memory that the device
// reaches by DMA, interrupts, and a call that lets the device work. A driver that uses nothing else
// can run in the process of the device (InProcessHost), or at the other end of a vfio or vfio-user
// connection.
//
// Single-threaded: only the thread that runs the driver uses it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "pcie/dma_space.h"
#include "util/clock.h"
#include "util/result.h"

namespace softhca::driver {

/// Memory that the driver and the device share.
struct DmaRegion {
  std::span<std::byte> bytes;  ///< as the driver addresses it
  pcie::Iova iova = 0;         ///< bus address of its first byte
};

class Host {
 public:
  /// Granularity and alignment of DMA memory.
  static constexpr std::size_t kPageSize = 4096;

  virtual ~Host() = default;
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  // Registers. A BAR access has 1, 2, 4 or 8 bytes, and is one access on the bus.
  virtual void read_config(std::uint32_t offset, std::span<std::byte> out) = 0;
  virtual void write_config(std::uint32_t offset, std::span<const std::byte> in) = 0;
  virtual void read_bar(unsigned bar, std::uint64_t offset, std::span<std::byte> out) = 0;
  virtual void write_bar(unsigned bar, std::uint64_t offset, std::span<const std::byte> in) = 0;

  // DMA memory. The classes of dma_memory.h own what these return.
  /// Allocates memory for queues and the like: zeroed, at least `size` bytes, page-aligned for both
  /// sides, contiguous for the device. Return it with free().
  virtual util::Result<DmaRegion> allocate(std::size_t size) = 0;
  virtual void free(const DmaRegion& region) = 0;
  /// Maps memory of the program for DMA. The region covers the whole pages that `bytes` touches,
  /// and is page-aligned for both sides. The same pages may be mapped more than once.
  virtual util::Result<DmaRegion> map(std::span<std::byte> bytes) = 0;
  virtual void unmap(const DmaRegion& region) = 0;

  // Interrupts.
  /// Enables vectors 0 to `count` - 1. Fails if the device has fewer.
  virtual util::Result<void> enable_interrupts(unsigned count) = 0;
  virtual void disable_interrupts() = 0;
  /// How often `vector` was signaled since enable_interrupts().
  virtual std::uint64_t interrupts(unsigned vector) const = 0;
  /// Lets the device work, and may sleep meanwhile, at most until `vector` is signaled or `until`
  /// has passed.
  virtual void wait_interrupt(unsigned vector, util::Time until) {
    (void)vector, (void)until;
    progress();
  }

  // Time.
  /// Lets the device work, if it does not do so by itself: in the same process this runs its engine
  /// inline in the caller. Drivers call it while they wait.
  virtual void progress() = 0;
  /// The clock of the driver's time limits.
  virtual util::Time now() const = 0;
  /// True if the device is gone for good, so that a driver must not wait for it any longer.
  virtual bool lost() const { return false; }
  /// The error of a call that waits for a lost() device.
  static constexpr const char* kLost = "the device is gone";

 protected:
  Host() = default;
};

}  // namespace softhca::driver
