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
  /// Work (util::WorkBudget) of freeing a page that is contiguous with no other.
  static constexpr std::int64_t kPageWork = rdma::MemoryKey::kExtentWork;

  /// `any` becomes true with each region.
  explicit UnloadedRegions(bool& any) : any_(any) {}

  void add(std::unique_ptr<rdma::MemoryKey> region) {
    any_ = true;
    regions_.push_back(std::move(region));
  }
  /// Has the device run again soon, as it does while there are regions here.
  void ask_for_turn() { any_ = true; }
  bool empty() const { return regions_.empty(); }
  /// Frees regions until `work` is spent. True if none are left.
  bool free(util::WorkBudget& work) {
    for (; !regions_.empty(); regions_.pop_back()) {
      if (work.spent() || !regions_.back()->shrink(work)) return false;
      work.charge(regions_.back()->destroy_work());
    }
    return true;
  }

 private:
  bool& any_;
  std::vector<std::unique_ptr<rdma::MemoryKey>> regions_;
};

}  // namespace softhca::jingzhao
