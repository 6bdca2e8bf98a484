// The pages of a memory key whose list work requests write anew, wholly or in part.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "pcie/dma_space.h"
#include "util/work_budget.h"

namespace softhca::rdma {

/// Entries by number, as they were given: they mean nothing but their address and rights until an
/// access asks, because the size of a page may be told after its address. They lie in chunks, so
/// that neither growing nor giving back moves all of them.
class PageTable {
 public:
  static constexpr std::size_t kChunk = 1024;
  /// Page addresses are multiples of this; the rights lie below.
  static constexpr pcie::Iova kAlignment = 4096;

  struct Page {
    pcie::Iova address;
    std::uint8_t access;  ///< Access bits; none: there is no such page
  };

  /// Entry `number`, which may lie behind all that are there. @pre aligned
  void set(std::size_t number, Page page);
  Page get(std::size_t number) const {
    const auto entry = raw(number);
    return {entry & ~(kAlignment - 1), static_cast<std::uint8_t>(entry & (kAlignment - 1))};
  }
  /// How many pages from `number` on follow each other on the bus, in pages of 2^`log_size` bytes,
  /// with the same rights. At most `max`, at least 1.
  std::size_t run(std::size_t number, unsigned log_size, std::size_t max) const;
  /// Whether each of the first `count` entries grants everything.
  bool all_grant_all(std::size_t count) const;
  /// As MemoryKey::shrink().
  bool shrink(util::WorkBudget& work);

 private:
  struct Chunk {
    std::vector<std::uint64_t> entries;
    std::size_t limited = 0;  ///< entries that do not grant everything
  };
  std::uint64_t raw(std::size_t number) const {
    const auto chunk = number / kChunk;
    if (chunk >= chunks_.size() || number % kChunk >= chunks_[chunk].entries.size()) return 0;
    return chunks_[chunk].entries[number % kChunk];
  }

  std::vector<Chunk> chunks_;
};

}  // namespace softhca::rdma
