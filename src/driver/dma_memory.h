// Owners of the memory that a Host shares with its device.
#pragma once

#include <cstddef>
#include <span>
#include <utility>

#include "driver/host.h"

namespace softhca::driver {

/// DMA memory of the driver itself: queues, mailboxes, doorbell records.
class DmaBuffer {
 public:
  DmaBuffer() = default;
  static util::Result<DmaBuffer> allocate(Host& host, std::size_t size);
  ~DmaBuffer();
  DmaBuffer(DmaBuffer&& other) noexcept { *this = std::move(other); }
  DmaBuffer& operator=(DmaBuffer&& other) noexcept {
    std::swap(host_, other.host_);
    std::swap(region_, other.region_);
    return *this;
  }

  std::span<std::byte> bytes() const { return region_.bytes; }
  /// Bus address of byte `offset`.
  pcie::Iova iova(std::size_t offset = 0) const { return region_.iova + offset; }

 private:
  Host* host_ = nullptr;
  DmaRegion region_;
};

/// A program's memory, mapped for DMA as long as this object lives.
class DmaMapping {
 public:
  DmaMapping() = default;
  static util::Result<DmaMapping> map(Host& host, std::span<std::byte> bytes);
  ~DmaMapping();
  DmaMapping(DmaMapping&& other) noexcept { *this = std::move(other); }
  DmaMapping& operator=(DmaMapping&& other) noexcept {
    std::swap(host_, other.host_);
    std::swap(region_, other.region_);
    return *this;
  }

  /// The whole pages that contain the program's bytes.
  const DmaRegion& pages() const { return region_; }

 private:
  Host* host_ = nullptr;
  DmaRegion region_;
};

}  // namespace softhca::driver
