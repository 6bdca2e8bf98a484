// Doorbell records: what software tells of a queue in memory, without a doorbell.
#pragma once

#include <cstdint>
#include <optional>

#include "pcie/dma_space.h"

namespace softhca::hca {

/// Two big-endian dwords that software updates without telling anyone. Keeps their host address as
/// long as no DMA mapping goes away.
class DoorbellRecord {
 public:
  DoorbellRecord() = default;
  /// One that is not aligned to 4 bytes is read by copy.
  DoorbellRecord(pcie::DmaSpace& dma, pcie::Iova address) : dma_(&dma), address_(address) {}

  pcie::Iova address() const { return address_; }
  /// Dword 0 or 1, with everything that software wrote before it visible after it. Nothing if the
  /// memory is gone.
  std::optional<std::uint32_t> read(unsigned dword);

 private:
  pcie::DmaSpace* dma_ = nullptr;
  pcie::Iova address_ = 0;
  std::byte* host_ = nullptr;
  std::uint64_t generation_ = 0;
};

}  // namespace softhca::hca
