// Doorbell records: dwords in host memory through which software reports to the device without
// MMIO.
#pragma once

#include <cstdint>
#include <optional>

#include "pcie/dma_space.h"
#include "util/endian.h"

namespace softhca::hca {

/// Two big-endian dwords that software updates without notifying the device. The device never
/// writes them: a guest's kernel pins them for reading only, so they may be in a file that the
/// process must not change. Caches their host address until a DMA mapping goes away.
class DoorbellRecord {
 public:
  DoorbellRecord() = default;
  /// A record that is not aligned to 4 bytes is read by copy.
  DoorbellRecord(pcie::DmaSpace& dma, pcie::Iova address) : dma_(&dma), address_(address) {}

  pcie::Iova address() const { return address_; }
  /// Reads dword 0 or 1 with acquire order: everything that software wrote before it is visible
  /// after it. Nothing if the memory is gone.
  std::optional<std::uint32_t> read(unsigned dword) {
    if (host_ == nullptr || generation_ != dma_->generation()) return read_slow(dword);
    return load(dword);
  }

 private:
  std::uint32_t load(unsigned dword) const {
    const auto* at = reinterpret_cast<const std::uint32_t*>(host_ + kDword * dword);
    const std::uint32_t raw = __atomic_load_n(at, __ATOMIC_ACQUIRE);
    return util::load_be32(reinterpret_cast<const std::byte*>(&raw));
  }
  /// Slow path of read(): no valid host address is cached, or the memory is remote.
  std::optional<std::uint32_t> read_slow(unsigned dword);

  static constexpr std::uint64_t kDword = sizeof(std::uint32_t);

  pcie::DmaSpace* dma_ = nullptr;
  pcie::Iova address_ = 0;
  std::byte* host_ = nullptr;
  std::uint64_t generation_ = 0;
};

}  // namespace softhca::hca
