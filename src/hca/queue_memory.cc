#include "hca/queue_memory.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace softhca::hca {

namespace {

/// Most pages whose host addresses are cached.
constexpr std::size_t kResolvedAtOnce = 256;

}  // namespace

QueueMemory QueueMemory::over_pages(pcie::DmaSpace& dma, std::vector<pcie::Iova> pages,
                                    unsigned log_page_size, std::uint64_t page_offset,
                                    std::uint64_t size) {
  assert(pages.size() >= pages_needed(log_page_size, page_offset, size));
  QueueMemory memory;
  memory.dma_ = &dma;
  memory.pages_ = std::move(pages);
  memory.page_offset_ = page_offset;
  memory.size_ = size;
  memory.log_page_size_ = log_page_size;
  return memory;
}

QueueMemory QueueMemory::over_key(const KeyRange& range, std::uint64_t size) {
  QueueMemory memory;
  memory.dma_ = &range.keys->dma();
  memory.key_ = range;
  memory.size_ = size;
  return memory;
}

void QueueMemory::resolve() {
  const std::uint64_t page_size = std::uint64_t{1} << log_page_size_;
  generation_ = dma_->generation();
  contiguous_ = nullptr;
  // A large queue looks up each page on use: resolving all of them would delay one packet.
  if (pages_.size() > kResolvedAtOnce) return;
  host_.resize(pages_.size());
  bool contiguous = true;
  for (std::size_t i = 0; i < pages_.size(); ++i) {
    host_[i] = dma_->translate(pages_[i], page_size, pcie::DmaAccess::kReadWrite);
    contiguous =
        contiguous && host_[i] != nullptr && (i == 0 || host_[i] == host_[i - 1] + page_size);
  }
  contiguous_ = contiguous && !host_.empty() ? host_[0] + page_offset_ : nullptr;
}

// Guests choose offsets, so the slow paths check the precondition: a caller's bug must not become
// an access past the page list.

std::byte* QueueMemory::find(std::uint64_t offset, std::uint64_t length) {
  if (offset + length > size_) return nullptr;
  if (key_) return find_behind_key(offset, length);
  if (generation_ != dma_->generation()) resolve();
  if (contiguous_ != nullptr) return contiguous_ + offset;
  const std::uint64_t position = page_offset_ + offset;
  const std::uint64_t in_page = position & ((std::uint64_t{1} << log_page_size_) - 1);
  if (in_page + length > std::uint64_t{1} << log_page_size_) return nullptr;
  if (host_.empty()) {
    const auto at = pages_[position >> log_page_size_] + in_page;
    return dma_->translate(at, length, pcie::DmaAccess::kReadWrite);
  }
  std::byte* page = host_[position >> log_page_size_];
  return page == nullptr ? nullptr : page + in_page;
}

std::byte* QueueMemory::find_behind_key(std::uint64_t offset, std::uint64_t length) {
  const auto address = key_->address + offset;
  constexpr auto access = rdma::kLocalRead | rdma::kLocalWrite;
  const auto checked = key_->keys->check(key_->key, key_->user, address, length, access);
  if (!checked) return nullptr;
  return key_->keys->one_piece(*checked.key, address, length, pcie::DmaAccess::kReadWrite);
}

template <class Piece>
bool QueueMemory::for_each_page(std::uint64_t offset, std::uint64_t length, Piece&& piece) {
  if (offset + length > size_) return false;
  std::uint64_t position = page_offset_ + offset;
  const std::uint64_t page_size = std::uint64_t{1} << log_page_size_;
  for (std::uint64_t done = 0; done < length;) {
    const auto in_page = position & (page_size - 1);
    const auto n = std::min(length - done, page_size - in_page);
    if (!piece(pages_[position >> log_page_size_] + in_page, done, n)) return false;
    position += n;
    done += n;
  }
  return true;
}

bool QueueMemory::read(std::uint64_t offset, std::span<std::byte> out) {
  if (const auto* from = at(offset, out.size())) {
    std::memcpy(out.data(), from, out.size());
    return true;
  }
  if (key_) {
    const auto address = key_->address + offset;
    const auto checked =
        key_->keys->check(key_->key, key_->user, address, out.size(), rdma::kLocalRead);
    return checked && key_->keys->read(*checked.key, address, out);
  }
  return for_each_page(offset, out.size(),
                       [&](pcie::Iova iova, std::uint64_t done, std::uint64_t n) {
                         return dma_->read(iova, out.subspan(done, n));
                       });
}

bool QueueMemory::write(std::uint64_t offset, std::span<const std::byte> in) {
  if (auto* to = at(offset, in.size())) {
    std::memcpy(to, in.data(), in.size());
    return true;
  }
  if (key_) {
    const auto address = key_->address + offset;
    const auto checked =
        key_->keys->check(key_->key, key_->user, address, in.size(), rdma::kLocalWrite);
    return checked && key_->keys->write(*checked.key, address, in);
  }
  return for_each_page(offset, in.size(),
                       [&](pcie::Iova iova, std::uint64_t done, std::uint64_t n) {
                         return dma_->write(iova, in.subspan(done, n));
                       });
}

}  // namespace softhca::hca
