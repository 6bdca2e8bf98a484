#include "hca/doorbell_record.h"

namespace softhca::hca {

std::optional<std::uint32_t> DoorbellRecord::read_slow(unsigned dword) {
  if (dma_ == nullptr) return std::nullopt;
  if (generation_ != dma_->generation()) {
    generation_ = dma_->generation();
    const bool aligned = address_ % kDword == 0;
    host_ = aligned ? dma_->translate(address_, 2 * kDword, pcie::DmaAccess::kRead) : nullptr;
  }
  if (host_ != nullptr) return load(dword);
  std::byte bytes[kDword];
  if (!dma_->read(address_ + kDword * dword, bytes)) return std::nullopt;
  return util::load_be32(bytes);
}

}  // namespace softhca::hca
