#include "hca/doorbell_record.h"

#include "util/endian.h"

namespace softhca::hca {

namespace {

constexpr std::uint64_t kDword = sizeof(std::uint32_t);

}  // namespace

std::optional<std::uint32_t> DoorbellRecord::read(unsigned dword) {
  if (dma_ == nullptr) return std::nullopt;
  if (generation_ != dma_->generation()) {
    generation_ = dma_->generation();
    const bool aligned = address_ % kDword == 0;
    host_ = aligned ? dma_->translate(address_, 2 * kDword, pcie::DmaAccess::kRead) : nullptr;
  }
  if (host_ != nullptr) {
    const auto* at = reinterpret_cast<const std::uint32_t*>(host_ + kDword * dword);
    const std::uint32_t raw = __atomic_load_n(at, __ATOMIC_ACQUIRE);
    return util::load_be32(reinterpret_cast<const std::byte*>(&raw));
  }
  std::byte bytes[kDword];
  if (!dma_->read(address_ + kDword * dword, bytes)) return std::nullopt;
  return util::load_be32(bytes);
}

}  // namespace softhca::hca
