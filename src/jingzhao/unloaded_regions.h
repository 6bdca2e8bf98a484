// Regions that are no longer used. UNMAP_ICM unloads up to 2^22 pages, which takes too long for a
// turn, so they are freed over several.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "rdma/memory_key.h"
#include "util/work_budget.h"

namespace softhca::jingzhao {

class UnloadedRegions {
 public:
  /// Work (util::WorkBudget) of freeing a page.
  static constexpr std::int64_t kPageWork = 3;

  /// `any` becomes true with each region.
  explicit UnloadedRegions(bool& any) : any_(any) {}

  void add(std::unique_ptr<rdma::MemoryKey> region, std::uint64_t pages) {
    any_ = true;
    regions_.emplace_back(std::move(region), pages);
  }
  bool empty() const { return regions_.empty(); }
  /// Frees regions until `work` is spent. True if none are left.
  bool free(util::WorkBudget& work) {
    while (!regions_.empty() && !work.spent()) {
      work.charge(static_cast<std::int64_t>(regions_.back().second) * kPageWork);
      regions_.pop_back();
    }
    return regions_.empty();
  }

 private:
  bool& any_;
  std::vector<std::pair<std::unique_ptr<rdma::MemoryKey>, std::uint64_t>> regions_;
};

}  // namespace softhca::jingzhao
