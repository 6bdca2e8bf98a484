// Numbers that the driver allocates: the document lets software choose QPNs, CQNs, the indexes of
// MPT entries, and the MTT entries of a region's pages.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "util/id_allocator.h"

namespace softhca::driver::jingzhao {

using Numbers = util::IdAllocator;

/// Allocates ranges of MTT entries, first fit.
class MttRanges {
 public:
  explicit MttRanges(std::uint64_t size) { free_.emplace(0, size); }

  std::optional<std::uint64_t> allocate(std::uint64_t count) {
    for (auto at = free_.begin(); at != free_.end(); ++at) {
      const auto [start, size] = *at;
      if (size < count) continue;
      free_.erase(at);
      if (size > count) free_.emplace(start + count, size - count);
      return start;
    }
    return std::nullopt;
  }
  void free(std::uint64_t start, std::uint64_t count) {
    auto at = free_.emplace(start, count).first;
    if (const auto next = std::next(at); next != free_.end() && start + count == next->first) {
      at->second += next->second;
      free_.erase(next);
    }
    if (at == free_.begin()) return;
    if (const auto before = std::prev(at); before->first + before->second == start) {
      before->second += at->second;
      free_.erase(at);
    }
  }

 private:
  std::map<std::uint64_t, std::uint64_t> free_;  ///< size of a free range, by its start
};

}  // namespace softhca::driver::jingzhao
