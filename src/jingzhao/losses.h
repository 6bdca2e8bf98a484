// Contexts and CQs that went away while queue pairs used them. A lost resource may be back before
// all queue pairs are checked, so losses have numbers, and each resource has that of its last loss.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "jingzhao/icm_cache.h"
#include "jingzhao/numbers.h"
#include "util/work_budget.h"

namespace softhca::jingzhao {

/// The last loss of each resource of a kind, by the number of the resource.
class LastLosses {
 public:
  /// Resources of this range are lost. `loss`: number of the loss, above all earlier ones.
  void note(std::uint64_t loss, IcmCache::Range lost) {
    if (lost.first >= lost.end) return;
    if (last_.size() < lost.end) last_.resize(lost.end);
    const auto at = [this](std::uint32_t number) {
      return last_.begin() + static_cast<std::ptrdiff_t>(number);
    };
    std::fill(at(lost.first), at(lost.end), loss);
  }
  /// True if the resource was lost after loss number `loss`.
  bool after(std::uint64_t loss, std::uint32_t number) const {
    return number < last_.size() && last_[number] > loss;
  }

 private:
  std::vector<std::uint64_t> last_;  ///< by number; 0: never lost
};

/// The losses, and which queue pairs are still to be checked for them.
class Losses {
 public:
  /// `qpns`: size of the table of QPs.
  explicit Losses(std::uint32_t qpns) : qpns_(qpns) {}

  /// Contexts of QPs, by QPN, and CQs are lost. All QPs are to be checked.
  void note(IcmCache::Range contexts, IcmCache::Range cqs) {
    ++last_;
    contexts_.note(last_, contexts);
    cqs_.note(last_, cqs);
    unchecked_ = qpns_;
  }
  /// Number of the last loss. Later ones concern a QP that is created now.
  std::uint64_t last() const { return last_; }

  bool all_checked() const { return unchecked_ == 0; }
  /// Calls `check(qpn)` for QPNs that are still to be checked, until `work` is spent. `check`
  /// charges for that.
  template <class Check>
  void check_some(const util::WorkBudget& work, Check&& check) {
    const auto most = std::min(unchecked_, kCheckedAtOnce);
    for (std::uint32_t done = 0; done != most && (done < kAtLeast || !work.spent()); ++done) {
      check(Qpn(qpns_ - unchecked_--));
    }
    if (unchecked_ == 0) handled_ = last_;
  }
  /// True if the QP has lost its context. `born`: last() when it was created.
  bool has_lost_context(Qpn qpn, std::uint64_t born) const {
    return contexts_.after(std::max(born, handled_), qpn.value());
  }
  /// True if the CQ was lost since then.
  bool has_lost_cq(Cqn cqn, std::uint64_t born) const {
    return cqs_.after(std::max(born, handled_), cqn.value());
  }

 private:
  /// Limit on the QPNs that one check_some() visits.
  static constexpr std::uint32_t kCheckedAtOnce = 1024;
  /// QPNs that it visits even if `work` is spent: other work must not delay them forever.
  static constexpr std::uint32_t kAtLeast = 16;

  std::uint32_t qpns_;
  std::uint64_t last_ = 0;
  std::uint64_t handled_ = 0;  ///< number of the last loss for which all QPs were checked
  LastLosses contexts_;        ///< by QPN
  LastLosses cqs_;
  std::uint32_t unchecked_ = 0;  ///< QPNs at the table's end
};

}  // namespace softhca::jingzhao
