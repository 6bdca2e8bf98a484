// Memory regions: MPT and MTT in the ICM, and the regions cached as memory keys (JingZhao 3.2.3).
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "jingzhao/command.h"
#include "jingzhao/icm_cache.h"
#include "jingzhao/numbers.h"
#include "jingzhao/unloaded_regions.h"
#include "rdma/memory_key.h"
#include "spec/jingzhao/context.h"
#include "util/notes.h"

namespace softhca::jingzhao {

class MemoryKeys final : private rdma::KeySource {
 public:
  using Mpt = spec::jingzhao::mpt_entry;

  struct Parts {
    pcie::DmaSpace& dma;
    Icm& icm;
    util::Notes& notes;
    UnloadedRegions& unloaded;
    std::uint64_t mpt_base;
    std::uint64_t mtt_base;
    unsigned log_mpts;
    std::uint32_t cache;          ///< capacity of the ICM cache of each table
    bool all_memory_is_physical;  ///< ProfileRules
  };

  /// Pages that an access loads with a region, enough for any queue. Later turns load the others: a
  /// packet may use a region for each of its scatter entries.
  static constexpr std::uint64_t kFirstPages =
      (std::uint64_t{limits::kMaxQueue} >> limits::kLogMinPage) + 1;
  /// Work (util::WorkBudget) of loading a region, of each of its pages, and of a page that is used
  /// before it is loaded.
  static constexpr std::int64_t kBringWork = 500;
  static constexpr std::int64_t kPageWork = 10;
  static constexpr std::int64_t kEarlyPageWork = 200;

  explicit MemoryKeys(const Parts& parts);
  /// The key table that the transport and all queues use.
  rdma::KeyTable& table() { return keys_; }

  // Commands.
  CommandResult install(std::uint32_t index, util::View<Mpt> entry);
  CommandResult remove(std::uint32_t index);
  /// `pages`: bus addresses.
  CommandResult write_mtt(std::uint64_t start, std::span<const std::uint64_t> pages);
  /// These ranges of the ICM are no longer mapped. @pre the ranges are merged
  void drop(std::span<const Icm::Range> ranges);

  /// Evicts cached regions until regions and pages are within their limits. Must not run while the
  /// transport is processing.
  void trim() {
    if (!unsettled_) [[likely]]
      return;
    while (is_crowded()) evict();
    while (partial_.size() > kPartialMax) evict_index(partial_.front().region.index);
    unsettled_ = !partial_.empty();
  }
  /// trim(), and loads the missing pages of regions until `work` is spent.
  void settle(util::WorkBudget& work) {
    if (!unsettled_) [[likely]]
      return;
    trim();
    load_rest(work);
  }
  /// Charges `work` for what was loaded, and loads the missing pages until it is spent.
  void charge(util::WorkBudget& work) {
    if (!keys_.work().any()) [[likely]]
      return;
    work.charge(keys_.work().drain());
    load_rest(work);
  }

  // Inspection.
  std::uint32_t count() const { return count_; }  ///< number of installed regions
  const IcmCache& mpts() const { return mpts_; }
  const IcmCache& mtts() const { return mtts_; }
  IcmCache& mpts() { return mpts_; }
  IcmCache& mtts() { return mtts_; }
  std::size_t cached() const { return cached_.size(); }
  /// Pages of the cached regions, loaded or not.
  std::uint64_t cached_pages() const { return cached_pages_; }
  /// Cached regions that are not loaded wholly.
  std::size_t partial() const { return partial_.size(); }

 private:
  /// MTT entries of one cache line. Lines are aligned, so that no page boundary divides one.
  static constexpr std::uint32_t kMttsOfLine = 8;
  static constexpr std::uint64_t kLine = std::uint64_t{kMttsOfLine} * limits::kMttSize;
  /// Pages that are loaded in one step.
  static constexpr std::size_t kStep = 512;
  /// Limit on partial_, which is searched.
  static constexpr std::size_t kPartialMax = 128;
  /// A cached region, with the position of its MTT entries.
  struct CachedRegion {
    std::uint32_t index;
    std::uint64_t first_mtt;
    std::uint64_t mtts;
  };
  /// A cached region whose pages from `loaded` on are not loaded yet.
  struct Partial {
    CachedRegion region;
    std::uint64_t loaded;
  };

  bool is_crowded() const {
    return cached_.size() > parts_.cache || cached_pages_ > limits::kMaxCachedPages;
  }
  void forget(const CachedRegion& region);
  void bring(std::uint32_t index) override;
  std::optional<pcie::Iova> bring_page(rdma::MKey key, std::uint64_t number) override;
  void load_rest(util::WorkBudget& work);
  bool load(rdma::MemoryKey& key, const CachedRegion& region, std::uint64_t first,
            std::uint64_t count);
  bool read_mtts(std::uint64_t first, std::span<std::uint64_t> pages, bool is_long);
  void note_no_mtt(std::uint32_t index);
  void evict();
  void evict_index(std::uint32_t index);
  template <class Which>
  void evict_if(Which&& which);

  Parts parts_;
  rdma::KeyTable keys_;
  IcmCache mpts_;
  std::uint32_t mtts_before_;  ///< entries of the first line that lie before the table
  IcmCache mtts_;
  std::vector<bool> installed_;  ///< by index
  std::uint32_t count_ = 0;
  std::deque<CachedRegion> cached_;  ///< in the order in which they were loaded
  std::uint64_t cached_pages_ = 0;
  std::vector<Partial> partial_;
  bool unsettled_ = false;  ///< the limits may be exceeded, or pages are missing
};

/// MemoryKeys::charge(), and the same for accesses to remote memory.
inline void charge_memory(MemoryKeys& keys, util::WorkBudget& work) {
  keys.charge(work);
  work.charge(pcie::RemoteAccesses::take_work());
}

}  // namespace softhca::jingzhao
