#include "connectx/queue/queue_buffer.h"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cstring>

#include "util/endian.h"

namespace softhca::connectx {

std::optional<QueueBuffer> QueueBuffer::from_pas(pcie::DmaSpace& dma,
                                                 std::span<const std::byte> pas,
                                                 unsigned log_page_size, std::uint64_t page_offset,
                                                 std::uint64_t size) {
  const std::uint64_t page_size = 1ull << log_page_size;
  const std::uint64_t count = (page_offset + size + page_size - 1) >> log_page_size;
  if (pas.size() / 8 < count) return std::nullopt;
  QueueBuffer buffer;
  buffer.dma_ = &dma;
  buffer.page_offset_ = page_offset;
  buffer.size_ = size;
  buffer.log_page_size_ = log_page_size;
  buffer.pages_.reserve(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    // The low 12 bits of a PAS are reserved (PRM Table 120).
    buffer.pages_.push_back(util::load_be64(pas.data() + 8 * i) & ~std::uint64_t{0xFFF});
  }
  return buffer;
}

void QueueBuffer::resolve() {
  const std::uint64_t page_size = 1ull << log_page_size_;
  generation_ = dma_->generation();
  host_.resize(pages_.size());
  bool contiguous = true;
  for (std::size_t i = 0; i < pages_.size(); ++i) {
    host_[i] = dma_->translate(pages_[i], page_size, pcie::DmaAccess::kReadWrite);
    contiguous =
        contiguous && host_[i] != nullptr && (i == 0 || host_[i] == host_[i - 1] + page_size);
  }
  contiguous_ = contiguous && !host_.empty() ? host_[0] + page_offset_ : nullptr;
}

std::byte* QueueBuffer::at(std::uint64_t offset, std::uint64_t length) {
  assert(offset + length <= size_);
  if (generation_ != dma_->generation()) resolve();
  if (contiguous_ != nullptr) return contiguous_ + offset;
  const std::uint64_t position = page_offset_ + offset;
  const std::uint64_t in_page = position & ((1ull << log_page_size_) - 1);
  if (in_page + length > 1ull << log_page_size_) return nullptr;
  std::byte* page = host_[position >> log_page_size_];
  return page == nullptr ? nullptr : page + in_page;
}

template <class Piece>
bool QueueBuffer::for_each_page(std::uint64_t offset, std::uint64_t length, Piece&& piece) {
  std::uint64_t position = page_offset_ + offset;
  const std::uint64_t page_size = 1ull << log_page_size_;
  for (std::uint64_t done = 0; done < length;) {
    const auto in_page = position & (page_size - 1);
    const auto n = std::min(length - done, page_size - in_page);
    if (!piece(pages_[position >> log_page_size_] + in_page, done, n)) return false;
    position += n;
    done += n;
  }
  return true;
}

bool QueueBuffer::read(std::uint64_t offset, std::span<std::byte> out) {
  if (const auto* from = at(offset, out.size())) {
    std::memcpy(out.data(), from, out.size());
    return true;
  }
  return for_each_page(offset, out.size(),
                       [&](pcie::Iova iova, std::uint64_t done, std::uint64_t n) {
                         return dma_->read(iova, out.subspan(done, n));
                       });
}

bool QueueBuffer::write(std::uint64_t offset, std::span<const std::byte> in) {
  if (auto* to = at(offset, in.size())) {
    std::memcpy(to, in.data(), in.size());
    return true;
  }
  return for_each_page(offset, in.size(),
                       [&](pcie::Iova iova, std::uint64_t done, std::uint64_t n) {
                         return dma_->write(iova, in.subspan(done, n));
                       });
}

std::optional<std::uint32_t> DoorbellRecord::read(unsigned dword) {
  if (dma_ == nullptr) return std::nullopt;
  if (generation_ != dma_->generation()) {
    generation_ = dma_->generation();
    // A record is 8-aligned in every driver; one that is not is read by copy below.
    host_ = address_ % 4 == 0 ? dma_->translate(address_, 8, pcie::DmaAccess::kRead) : nullptr;
  }
  if (host_ != nullptr) {
    const auto* at = reinterpret_cast<const std::uint32_t*>(host_ + 4 * dword);
    const std::uint32_t raw = __atomic_load_n(at, __ATOMIC_ACQUIRE);
    return util::load_be32(reinterpret_cast<const std::byte*>(&raw));
  }
  std::byte bytes[4];
  if (!dma_->read(address_ + 4 * dword, bytes)) return std::nullopt;
  return util::load_be32(bytes);
}

void publish_entry(std::byte* to, std::span<const std::byte> entry) {
  const std::size_t body = entry.size() - 4;
  std::memcpy(to, entry.data(), body);
  std::uint32_t last;
  std::memcpy(&last, entry.data() + body, 4);
  __atomic_store_n(reinterpret_cast<std::uint32_t*>(to + body), last, __ATOMIC_RELEASE);
}

}  // namespace softhca::connectx
