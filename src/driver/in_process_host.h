// The Host of a device in the same process: needs no root, no kernel module, no thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "driver/dma_pool.h"
#include "driver/host.h"
#include "pcie/function.h"

namespace softhca::driver {

class InProcessHost : public Host, private pcie::InterruptSink {
 public:
  struct Options {
    /// Lets the device and its link partners work for a while: runs the function, delivers frames.
    /// progress() calls it, and never recursively.
    std::function<void()> progress = nullptr;
    std::function<util::Time()> clock = util::monotonic_now;
    /// Use MSI instead of MSI-X.
    bool msi = false;
    /// Called for every interrupt, in addition to the count, by the device's thread that raises it.
    /// Must not call back into the function.
    std::function<void(unsigned vector)> on_interrupt = nullptr;
  };

  /// Becomes the function's interrupt sink. `function` must outlive the host.
  InProcessHost(pcie::Function& function, Options options);
  /// Resets the function, so that it forgets all addresses, and frees all DMA memory.
  ~InProcessHost() override;

  void read_config(std::uint32_t offset, std::span<std::byte> out) override;
  void write_config(std::uint32_t offset, std::span<const std::byte> in) override;
  void read_bar(unsigned bar, std::uint64_t offset, std::span<std::byte> out) override;
  void write_bar(unsigned bar, std::uint64_t offset, std::span<const std::byte> in) override;

  util::Result<DmaRegion> allocate(std::size_t size) override { return pool_.allocate(size); }
  void free(const DmaRegion& region) override { pool_.free(region); }
  util::Result<DmaRegion> map(std::span<std::byte> bytes) override;
  void unmap(const DmaRegion& region) override;

  util::Result<void> enable_interrupts(unsigned count) override;
  void disable_interrupts() override;
  std::uint64_t interrupts(unsigned vector) const override;

  void progress() override;
  util::Time now() const override { return options_.clock(); }

  /// Bytes of allocate() not freed, for tests of teardown.
  std::size_t allocated() const { return pool_.allocated(); }
  /// Regions of map() not unmapped.
  std::size_t mapped() const { return mapped_; }

 private:
  struct Unmapper {
    std::size_t size;
    void operator()(std::byte* memory) const;
  };
  using Arena = std::unique_ptr<std::byte, Unmapper>;

  void raise(std::uint16_t vector) override;
  void set_sink(pcie::InterruptSink* sink);
  util::Result<DmaRegion> add_arena(std::size_t size);

  pcie::Function& function_;
  Options options_;
  std::vector<std::atomic<std::uint64_t>> interrupts_;  ///< indexed by vector
  std::vector<Arena> arenas_;
  pcie::Iova next_iova_;
  DmaPool pool_;
  std::size_t mapped_ = 0;
  bool in_progress_ = false;
};

}  // namespace softhca::driver
