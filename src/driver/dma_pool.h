// Cuts the driver's own DMA memory out of large mappings, so that a device finds queues and
// mailboxes in few of them. Every Host's allocate() stands on it.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <vector>

#include "driver/host.h"

namespace softhca::driver {

class DmaPool {
 public:
  /// What a pool asks its host for at a time, at least: a large page.
  static constexpr std::size_t kArenaSize = std::size_t{2} << 20;
  /// Makes `size` bytes of zeroed memory that the device reaches, page-aligned on both sides. They
  /// belong to the host, which takes them back when it goes.
  using Grow = std::function<util::Result<DmaRegion>(std::size_t size)>;

  explicit DmaPool(Grow grow) : grow_(std::move(grow)) {}

  /// As Host::allocate() and Host::free() promise.
  util::Result<DmaRegion> allocate(std::size_t size);
  void free(const DmaRegion& region);

  /// Bytes of allocate() that were not given back.
  std::size_t allocated() const { return allocated_; }

 private:
  util::Result<DmaRegion> carve(std::size_t size);

  Grow grow_;
  DmaRegion rest_;                                      ///< of the newest arena
  std::map<std::size_t, std::vector<DmaRegion>> free_;  ///< by size
  std::size_t allocated_ = 0;
};

/// `size`, rounded up to a multiple of `unit`.
constexpr std::size_t round_up(std::size_t size, std::size_t unit) {
  return (size + unit - 1) / unit * unit;
}

}  // namespace softhca::driver
