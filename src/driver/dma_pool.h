// Allocates the driver's own DMA memory out of large mappings, so that queues and mailboxes need
// few of them. Every Host uses it for allocate().
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <vector>

#include "driver/host.h"

namespace softhca::driver {

class DmaPool {
 public:
  /// The least that a pool requests from its host at a time: a large page.
  static constexpr std::size_t kArenaSize = std::size_t{2} << 20;
  /// Returns `size` bytes of zeroed memory that the device reaches, page-aligned for both sides.
  /// The host owns them, and frees them when it is destroyed.
  using Grow = std::function<util::Result<DmaRegion>(std::size_t size)>;

  explicit DmaPool(Grow grow) : grow_(std::move(grow)) {}

  /// As specified for Host::allocate() and Host::free().
  util::Result<DmaRegion> allocate(std::size_t size);
  void free(const DmaRegion& region);

  /// Bytes allocated and not freed.
  std::size_t allocated() const { return allocated_; }

 private:
  util::Result<DmaRegion> carve(std::size_t size);

  Grow grow_;
  DmaRegion rest_;                                      ///< of the newest arena
  std::map<std::size_t, std::vector<DmaRegion>> free_;  ///< by size
  std::size_t allocated_ = 0;
};

/// First bus address of hosts whose devices reach all addresses. Bus addresses are never reused, so
/// that a stale one is unmapped. They differ from addresses of the process, so that a mix-up is
/// noticed.
inline constexpr pcie::Iova kFirstIova = pcie::Iova{1} << 40;

/// `size`, rounded up to a multiple of `unit`.
constexpr std::size_t round_up(std::size_t size, std::size_t unit) {
  return (size + unit - 1) / unit * unit;
}

}  // namespace softhca::driver
