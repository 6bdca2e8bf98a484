// Doorbell pages (JingZhao 3.1.2): doorbells written in halves, and pending arms of CQs and EQs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "hca/doorbell_halves.h"
#include "jingzhao/doorbells.h"
#include "jingzhao/queue_pairs.h"
#include "util/endian.h"
#include "util/work_budget.h"

namespace softhca::jingzhao {

struct Objects;

/// Passes SQ doorbells on immediately. Arms wait for arm(), because arming reads a ring in memory.
class DoorbellPages {
 public:
  using Page = spec::jingzhao::uar_page;

  /// `arms_max`: most pending arms of CQs. Software never needs more than there are CQs.
  DoorbellPages(std::size_t pages, std::size_t arms_max) : halves_(pages), arms_max_(arms_max) {}

  /// Handles a write to the BAR of the pages.
  void write(QueuePairs& queue_pairs, std::uint64_t offset, std::span<const std::byte> in) {
    if (in.size() == 2 * kDword && offset % Page::kSize == kFirstHalf) [[likely]] {
      halves_.drop(offset / Page::kSize);
      return queue_pairs.ring(SendDoorbell(util::load_le64(in.data())));
    }
    write_dwords(queue_pairs, offset, in);
  }

  bool has_arms() const { return !armed_cqs_.empty() || armed_eqs_ != 0; }
  /// Arms CQs and EQs until `work` is spent. True if some are left.
  bool arm(Objects& objects, util::WorkBudget& work);
  void drop_arms();
  void drop_halves() { halves_.clear(); }

 private:
  static constexpr std::size_t kDword = sizeof(std::uint32_t);
  static constexpr std::uint64_t kFirstHalf = Page::sq_head.kOffset;

  void write_dwords(QueuePairs& queue_pairs, std::uint64_t offset, std::span<const std::byte> in);

  hca::DoorbellHalves halves_;
  std::size_t arms_max_;
  std::vector<Cqn> armed_cqs_;
  std::uint64_t armed_eqs_ = 0;  ///< one bit for each EQ
};

}  // namespace softhca::jingzhao
