// The pages of a memory key whose page list is rewritten by work requests, wholly or in part.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "pcie/dma_space.h"
#include "util/work_budget.h"

namespace softhca::rdma {

/// Entries by number, stored as given: the page size may be set after the addresses, so an entry is
/// interpreted only at an access. They are kept in chunks, so that neither growing nor freeing
/// moves all of them.
class PageTable {
 public:
  static constexpr std::size_t kChunk = 1024;
  /// Alignment of page addresses; the low bits hold the rights.
  static constexpr pcie::Iova kAlignment = 4096;

  struct Page {
    pcie::Iova address;
    std::uint8_t access;  ///< Access bits; 0: the page is absent
  };

  /// Sets entry `number`, which may lie beyond the current end. @pre the address is aligned
  void set(std::size_t number, Page page);
  Page get(std::size_t number) const {
    const auto entry = raw(number);
    return {entry & ~(kAlignment - 1), static_cast<std::uint8_t>(entry & (kAlignment - 1))};
  }
  /// Number of pages from `number` on that are contiguous on the bus and have the same rights.
  /// Pages have 2^`log_size` bytes. At least 1, at most `max`.
  std::size_t run(std::size_t number, unsigned log_size, std::size_t max) const;
  /// True if each of the first `count` entries grants all rights.
  bool all_grant_all(std::size_t count) const;
  /// See MemoryKey::shrink().
  bool shrink(util::WorkBudget& work);

 private:
  struct Chunk {
    std::vector<std::uint64_t> entries;
    std::size_t limited = 0;  ///< entries that do not grant all rights
  };
  std::uint64_t raw(std::size_t number) const {
    const auto chunk = number / kChunk;
    if (chunk >= chunks_.size() || number % kChunk >= chunks_[chunk].entries.size()) return 0;
    return chunks_[chunk].entries[number % kChunk];
  }

  std::vector<Chunk> chunks_;
};

}  // namespace softhca::rdma
