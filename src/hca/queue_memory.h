// The memory of a queue: a list of pages, or a range behind a memory key.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "pcie/dma_space.h"
#include "rdma/memory_key.h"
#include "util/hot_assert.h"

namespace softhca::hca {

/// `size()` bytes of host memory that a device reads and writes by offset. Nothing is checked in
/// advance: memory may go away at any time, and each access reports whether it succeeded.
class QueueMemory {
 public:
  /// A range of virtual addresses behind a memory key.
  struct KeyRange {
    rdma::KeyTable* keys = nullptr;
    rdma::MKey key;
    rdma::KeyUser user;
    std::uint64_t address = 0;  ///< of offset 0
  };

  QueueMemory() = default;
  /// `pages`: bus addresses of pages of 2^log_page_size bytes. Offset 0 lies `page_offset` bytes
  /// into the first. Caches host addresses until a DMA mapping goes away. @pre the pages hold
  /// `size` bytes from there
  static QueueMemory over_pages(pcie::DmaSpace& dma, std::vector<pcie::Iova> pages,
                                unsigned log_page_size, std::uint64_t page_offset,
                                std::uint64_t size);
  /// Each access is checked against the key as it is at that time.
  static QueueMemory over_key(const KeyRange& range, std::uint64_t size);
  /// Number of pages that over_pages() needs. @pre the sum does not overflow
  static std::uint64_t pages_needed(unsigned log_page_size, std::uint64_t page_offset,
                                    std::uint64_t size) {
    return (page_offset + size + (std::uint64_t{1} << log_page_size) - 1) >> log_page_size;
  }

  std::uint64_t size() const { return size_; }  ///< bytes

  /// Host address of [offset, offset + length) if that is one piece of local memory. Otherwise
  /// null: use read() and write(). @pre offset + length <= size()
  std::byte* at(std::uint64_t offset, std::uint64_t length) {
    SOFTHCA_HOT_ASSERT(offset + length <= size_);
    if (contiguous_ != nullptr && generation_ == dma_->generation()) return contiguous_ + offset;
    return find(offset, length);
  }
  /// False if the memory is gone. @pre offset + out.size() <= size()
  bool read(std::uint64_t offset, std::span<std::byte> out);
  bool write(std::uint64_t offset, std::span<const std::byte> in);
  /// Cost of freeing the page list (util::WorkBudget); the queue itself is not included.
  std::int64_t dismantle_work() const { return static_cast<std::int64_t>(pages_.size()) / 4; }
  /// The page list as it was given, for query commands. Empty for memory behind a key.
  std::span<const pcie::Iova> pages() const { return pages_; }

 private:
  std::byte* find(std::uint64_t offset, std::uint64_t length);
  std::byte* find_behind_key(std::uint64_t offset, std::uint64_t length);
  void resolve();
  template <class Piece>
  bool for_each_page(std::uint64_t offset, std::uint64_t length, Piece&& piece);

  pcie::DmaSpace* dma_ = nullptr;
  std::byte* contiguous_ = nullptr;  ///< host address of offset 0 if all pages are contiguous in
                                     ///< host memory, else null
  std::uint64_t generation_ = 0;     ///< DMA generation that the cached host addresses belong to
  std::uint64_t size_ = 0;
  std::vector<pcie::Iova> pages_;
  /// Host address of each page; null if remote or unmapped. Empty if there are too many pages to
  /// cache.
  std::vector<std::byte*> host_;
  std::uint64_t page_offset_ = 0;
  unsigned log_page_size_ = 12;
  std::optional<KeyRange> key_;
};

}  // namespace softhca::hca
