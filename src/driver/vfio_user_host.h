// The Host of a device behind a vfio-user socket: of `softhca serve`, or of any other server. It
// needs no root and no kernel module. The driver's own memory is shared with the server as memfds;
// interrupts arrive by eventfd.
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
    /// How long the server may take to reply.
    util::Duration timeout = std::chrono::seconds(5);
    /// Runs a server in the same thread: called from progress(), and while a reply is awaited.
    std::function<void()> pump = {};
  };

  /// Connects, negotiates the protocol and checks that the device is a PCI device.
  static util::Result<std::unique_ptr<VfioUserHost>> connect(const std::string& path,
                                                             Options options);
  /// The server resets the device and unmaps the memory when its client disconnects.
  ~VfioUserHost() override;

  // If the server has gone, reads return all ones and writes are dropped, as on a removed device.
  void read_config(std::uint32_t offset, std::span<std::byte> out) override;
  void write_config(std::uint32_t offset, std::span<const std::byte> in) override;
  void read_bar(unsigned bar, std::uint64_t offset, std::span<std::byte> out) override;
  /// Posted, as on the bus: does not wait for the server. Several threads may call it concurrently.
  void write_bar(unsigned bar, std::uint64_t offset, std::span<const std::byte> in) override;

  util::Result<DmaRegion> allocate(std::size_t size) override { return pool_.allocate(size); }
  void free(const DmaRegion& region) override { pool_.free(region); }
  /// The server accesses this memory by messages, which progress() answers. For large transfers use
  /// memory of allocate(), which the server maps. With a server in the same thread, fails for other
  /// memory, because the server could not wait for an answer.
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
  /// The region of allocate() that contains these bytes; null if none does.
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
