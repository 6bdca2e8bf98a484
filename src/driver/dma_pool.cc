#include "driver/dma_pool.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>

namespace softhca::driver {

util::Result<DmaRegion> DmaPool::allocate(std::size_t size) {
  // Powers of two, so that the memory of a freed queue fits the next one.
  const auto rounded = std::max(std::bit_ceil(size), Host::kPageSize);
  auto region = carve(rounded);
  if (!region) return region;
  allocated_ += rounded;
  std::memset(region->bytes.data(), 0, rounded);
  return region;
}

util::Result<DmaRegion> DmaPool::carve(std::size_t size) {
  auto& freed = free_[size];
  if (!freed.empty()) {
    const auto region = freed.back();
    freed.pop_back();
    return region;
  }
  if (rest_.bytes.size() < size) {
    auto arena = grow_(round_up(size, kArenaSize));
    if (!arena) return arena;
    rest_ = *arena;
  }
  const DmaRegion region{rest_.bytes.first(size), rest_.iova};
  rest_ = {rest_.bytes.subspan(size), rest_.iova + size};
  return region;
}

void DmaPool::free(const DmaRegion& region) {
  assert(allocated_ >= region.bytes.size());
  allocated_ -= region.bytes.size();
  free_[region.bytes.size()].push_back(region);
}

}  // namespace softhca::driver
