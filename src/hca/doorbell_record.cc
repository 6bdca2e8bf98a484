#include "hca/doorbell_record.h"

namespace softhca::hca {

std::optional<std::uint32_t> DoorbellRecord::read_afar(unsigned dword) {
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

std::optional<std::uint32_t> DoorbellRecord::exchange(unsigned dword, std::uint32_t value) {
  if (dma_ == nullptr || address_ % kDword != 0) return std::nullopt;
  auto* const host =
      dma_->translate(address_ + kDword * dword, kDword, pcie::DmaAccess::kReadWrite);
  if (host == nullptr) return std::nullopt;
  std::uint32_t raw;
  util::store_be32(reinterpret_cast<std::byte*>(&raw), value);
  auto* const at = reinterpret_cast<std::uint32_t*>(host);
  // Most polls find no change. A plain load first leaves the cache line with its writer.
  if (__atomic_load_n(at, __ATOMIC_ACQUIRE) == raw) return value;
  raw = __atomic_exchange_n(at, raw, __ATOMIC_SEQ_CST);
  return util::load_be32(reinterpret_cast<const std::byte*>(&raw));
}

}  // namespace softhca::hca
