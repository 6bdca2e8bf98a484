// The pages of a memory key, joined where their bus addresses follow each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "pcie/dma_space.h"

namespace softhca::rdma {

/// Pages whose bus addresses follow each other.
struct Extent {
  std::uint64_t offset;  ///< of its first byte, from the start of the key
  std::uint64_t size;    ///< bytes
  pcie::Iova iova;
  std::uint8_t access;  ///< Access bits that its pages grant
};

/// Extents by ascending offset, without gaps. They lie in chunks: a guest may give a key millions
/// of pages, and one array of them could only be moved, or given back, all at once.
class ExtentList {
 public:
  static constexpr std::size_t kChunk = 1024;

  bool empty() const { return chunks_.empty(); }
  std::size_t size() const {
    return chunks_.empty() ? 0 : (chunks_.size() - 1) * kChunk + chunks_.back().size();
  }
  const Extent& operator[](std::size_t i) const { return chunks_[i / kChunk][i % kChunk]; }

  /// The next `size` bytes of the key lie at `iova`: a new extent, or a part of the last.
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
  /// Forgets the last of them, at most kChunk. @pre !empty()
  void drop_chunk() { chunks_.pop_back(); }

  /// The extent that holds `offset`; size() if none does.
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
    // `first` is the first one behind `offset`; an empty list has none before it.
    if (first == 0 || offset - (*this)[first - 1].offset >= (*this)[first - 1].size) return size();
    return first - 1;
  }

 private:
  std::vector<std::vector<Extent>> chunks_;  ///< none is empty, all but the last are full
};

}  // namespace softhca::rdma
