#include "driver/dma_memory.h"

namespace softhca::driver {

util::Result<DmaBuffer> DmaBuffer::allocate(Host& host, std::size_t size) {
  const auto region = host.allocate(size);
  if (!region) return tl::unexpected(region.error());
  DmaBuffer buffer;
  buffer.host_ = &host;
  buffer.region_ = *region;
  return buffer;
}

DmaBuffer::~DmaBuffer() {
  if (host_ != nullptr) host_->free(region_);
}

util::Result<DmaMapping> DmaMapping::map(Host& host, std::span<std::byte> bytes) {
  const auto region = host.map(bytes);
  if (!region) return tl::unexpected(region.error());
  DmaMapping mapping;
  mapping.host_ = &host;
  mapping.region_ = *region;
  return mapping;
}

DmaMapping::~DmaMapping() {
  if (host_ != nullptr) host_->unmap(region_);
}

}  // namespace softhca::driver
