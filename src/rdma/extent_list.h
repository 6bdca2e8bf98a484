// The pages of a memory key, joined where their bus addresses are contiguous.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "pcie/dma_space.h"

namespace softhca::rdma {

/// A run of pages with contiguous bus addresses.
struct Extent {
  std::uint64_t offset;  ///< offset of its first byte from the start of the key
  std::uint64_t size;    ///< bytes
  pcie::Iova iova;
  std::uint8_t access;  ///< Access bits that its pages grant
};

/// Extents by ascending offset, without gaps. They are kept in chunks: a guest may give a key
/// millions of pages, and one large array could only be moved or freed as a whole.
class ExtentList {
 public:
  static constexpr std::size_t kChunk = 1024;

  bool empty() const { return chunks_.empty(); }
  std::size_t size() const {
    return chunks_.empty() ? 0 : (chunks_.size() - 1) * kChunk + chunks_.back().size();
  }
  const Extent& operator[](std::size_t i) const { return chunks_[i / kChunk][i % kChunk]; }

  /// Maps the next `size` bytes of the key to `iova`: extends the last extent, or adds one.
  void append(pcie::Iova iova, std::uint64_t size, std::uint8_t access) {
    std::uint64_t offset = 0;
    if (!empty()) {
      auto& last = chunks_.back().back();
      if (last.iova + last.size == iova && last.access == access) {
        last.size += size;
        return;
      }
      offset = last.offset + last.size;
    }
    if (chunks_.empty() || chunks_.back().size() == kChunk) chunks_.emplace_back();
    chunks_.back().push_back({offset, size, iova, access});
  }
  /// Drops the last extents, at most kChunk. @pre !empty()
  void drop_chunk() { chunks_.pop_back(); }

  /// Index of the extent that holds `offset`; size() if there is none.
  std::size_t find(std::uint64_t offset) const {
    std::size_t first = 0;
    for (auto last = size(); first != last;) {
      const auto middle = first + (last - first) / 2;
      if (offset < (*this)[middle].offset) {
        last = middle;
      } else {
        first = middle + 1;
      }
    }
    // `first` is now the number of extents that begin at or before `offset`.
    if (first == 0 || offset - (*this)[first - 1].offset >= (*this)[first - 1].size) return size();
    return first - 1;
  }

 private:
  std::vector<std::vector<Extent>> chunks_;  ///< all but the last are full; none is empty
};

}  // namespace softhca::rdma
