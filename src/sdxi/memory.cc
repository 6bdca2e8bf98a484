#include "sdxi/memory.h"

#include <bit>
#include <cassert>

#include "util/endian.h"

namespace softhca::sdxi {

// Words in memory are little-endian (SDXI 2), as are all supported hosts: so an atomic access of
// the host is an atomic access of the document.
static_assert(std::endian::native == std::endian::little);

bool AddressSpace::read(Iova from, std::span<std::byte> out) const {
  return dma_ != nullptr && dma_->read(from, out);
}

bool AddressSpace::write(Iova to, std::span<const std::byte> in) const {
  return dma_ != nullptr && dma_->write(to, in);
}

std::byte* AddressSpace::word(Iova at, std::size_t size, pcie::DmaAccess access) const {
  if (dma_ == nullptr) return nullptr;
  auto* place = dma_->translate(at, size, access);
  return reinterpret_cast<std::uintptr_t>(place) % size == 0 ? place : nullptr;
}

std::optional<std::uint64_t> AddressSpace::load64(Iova at) const {
  if (const auto* place = word(at, 8, pcie::DmaAccess::kRead)) {
    return __atomic_load_n(reinterpret_cast<const std::uint64_t*>(place), __ATOMIC_ACQUIRE);
  }
  std::uint64_t value;
  if (!read(at, std::as_writable_bytes(std::span(&value, 1)))) return std::nullopt;
  return value;
}

std::optional<std::uint8_t> AddressSpace::load8(Iova at) const {
  if (const auto* place = word(at, 1, pcie::DmaAccess::kRead)) {
    return __atomic_load_n(reinterpret_cast<const std::uint8_t*>(place), __ATOMIC_ACQUIRE);
  }
  std::uint8_t value;
  if (!read(at, std::as_writable_bytes(std::span(&value, 1)))) return std::nullopt;
  return value;
}

bool AddressSpace::store64(Iova at, std::uint64_t value) const {
  if (auto* place = word(at, 8, pcie::DmaAccess::kWrite)) {
    __atomic_store_n(reinterpret_cast<std::uint64_t*>(place), value, __ATOMIC_RELEASE);
    return true;
  }
  return write(at, std::as_bytes(std::span(&value, 1)));
}

bool AddressSpace::store8(Iova at, std::uint8_t value) const {
  if (auto* place = word(at, 1, pcie::DmaAccess::kWrite)) {
    __atomic_store_n(reinterpret_cast<std::uint8_t*>(place), value, __ATOMIC_RELEASE);
    return true;
  }
  return write(at, std::as_bytes(std::span(&value, 1)));
}

bool AddressSpace::load_words(Iova from, std::span<std::byte> out) const {
  assert(out.size() % 8 == 0);
  if (dma_ == nullptr) return false;
  const auto* place = dma_->translate(from, out.size(), pcie::DmaAccess::kRead);
  if (place == nullptr || reinterpret_cast<std::uintptr_t>(place) % 8 != 0) {
    return dma_->read(from, out);
  }
  sdxi::load_words(place, out);
  return true;
}

std::span<std::byte> AddressSpace::piece(Iova at, std::uint64_t size,
                                         pcie::DmaAccess access) const {
  return dma_ == nullptr ? std::span<std::byte>{} : dma_->translate_prefix(at, size, access);
}

AddressSpace::Fault AddressSpace::explain(Iova at) const {
  if (dma_ != nullptr && dma_->overlaps(at, 1)) {
    return {spec::err_sub_step::SUB_ACCESS, spec::err_class::MEMORY_PERMISSION};
  }
  return {spec::err_sub_step::SUB_TRANSLATION, spec::err_class::MEMORY_TRANSLATION};
}

}  // namespace softhca::sdxi
