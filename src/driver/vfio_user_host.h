// The door to a device behind a vfio-user socket: `softhca serve`, or any other server. No root, no
// kernel module. The driver's own memory is shared with the server as memfds; interrupts come by
// eventfd.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "driver/dma_pool.h"
#include "driver/eventfd_interrupts.h"
#include "driver/host.h"
#include "vfio_user/client.h"

namespace softhca::driver {

class VfioUserHost final : public Host {
 public:
  struct Options {
    /// How long the server may take to answer.
    util::Duration timeout = std::chrono::seconds(5);
    /// Runs a server that shares the thread: called from progress() and while an answer is awaited.
    std::function<void()> pump = {};
  };

  /// Connects, agrees on the protocol and sees that there is a PCI device.
  static util::Result<std::unique_ptr<VfioUserHost>> connect(const std::string& path,
                                                             Options options);
  /// The server resets the device and forgets the memory when its client goes.
  ~VfioUserHost() override;

  // When the server has gone, reads find ones and writes nothing, as on a device that was pulled.
  void read_config(std::uint32_t offset, std::span<std::byte> out) override;
  void write_config(std::uint32_t offset, std::span<const std::byte> in) override;
  void read_bar(unsigned bar, std::uint64_t offset, std::span<std::byte> out) override;
  /// Posted, as on the bus: does not wait for the server. Threads may call it at the same time.
  void write_bar(unsigned bar, std::uint64_t offset, std::span<const std::byte> in) override;

  util::Result<DmaRegion> allocate(std::size_t size) override { return pool_.allocate(size); }
  void free(const DmaRegion& region) override { pool_.free(region); }
  /// The server reaches this memory by messages, which are answered in progress(). For much data
  /// take memory of allocate(), which it reaches by itself. Fails for other memory with a server
  /// that shares the thread: it could not wait.
  util::Result<DmaRegion> map(std::span<std::byte> bytes) override;
  void unmap(const DmaRegion& region) override;

  util::Result<void> enable_interrupts(unsigned count) override;
  void disable_interrupts() override;
  std::uint64_t interrupts(unsigned vector) const override { return interrupts_.signaled(vector); }
  void wait_interrupt(unsigned vector, util::Time until) override;

  void progress() override;
  util::Time now() const override { return util::monotonic_now(); }
  bool lost() const override { return lost_; }

 private:
  VfioUserHost(vfio_user::Client client, Options options);
  util::Result<void> inspect();
  util::Result<DmaRegion> add_arena(std::size_t size);
  /// The memory of allocate() that these bytes are of. Null: they are not.
  const DmaRegion* arena_of(std::span<const std::byte> bytes) const;
  void read_region(std::uint32_t region, std::uint64_t offset, std::span<std::byte> out);
  void serve_client();
  void check(bool good, std::string_view what);

  Options options_;
  std::mutex mutex_;  ///< guards client_: several producers ring doorbells
  vfio_user::Client client_;
  mutable EventfdInterrupts interrupts_;
  std::vector<DmaRegion> arenas_;
  pcie::Iova next_iova_;
  DmaPool pool_;
  std::size_t mapped_ = 0;  ///< regions of map()
  unsigned turns_ = 0;      ///< of progress()
  std::atomic<bool> lost_ = false;
};

}  // namespace softhca::driver
