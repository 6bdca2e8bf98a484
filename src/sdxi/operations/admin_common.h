// Parts that administrative operations share: the target function, and the index limits.
#pragma once

#include "sdxi/budget.h"
#include "sdxi/operation.h"

namespace softhca::sdxi {

struct ContextRange {
  ContextNumber first;
  ContextNumber last;
};

/// The function that `vf` and `vf_num` of a descriptor name (SDXI 3.5).
struct AdminTarget {
  ContextControl* contexts;
  bool is_vf;  ///< P2V
};

Checked<AdminTarget> admin_target(Work& work, bool vf, std::uint32_t vf_num);

/// SDXI 6.6.1, entry type CXT.
Checked<ContextRange> context_range(const Registers& registers, std::uint32_t first,
                                    std::uint32_t last);
/// SDXI 6.6.1, entry type RKEY.
Checked<void> check_rkey_range(const Registers& registers, std::uint32_t first, std::uint32_t last);
/// SDXI 6.6.1, entry type AKEY, for one context. An invalid context is no error (SDXI 6.6.2).
Checked<void> check_akey_range(const ContextControl& contexts, ContextNumber number,
                               std::uint32_t first, std::uint32_t last);

/// A failure on a target. SDXI 3.5: the VF logs an error that a PF's operation meets on it.
tl::unexpected<Refusal> fail_on_target(const AdminTarget& target, Refusal refusal);

template <class Layout>
Checked<AdminTarget> admin_target(Work& work, util::View<Layout> view) {
  return admin_target(work, view.get(Layout::vf) != 0, view.get(Layout::vf_num));
}

template <class Layout>
Checked<ContextRange> context_range(const AdminTarget& target, util::View<Layout> view) {
  return context_range(target.contexts->registers(), view.get(Layout::cxt_start),
                       view.get(Layout::cxt_end));
}

/// Applies `visit` to the remaining contexts of the range until the budget is used up. Stops at the
/// first error, which SDXI 6.6.2 permits.
template <class Visit>
Checked<Progress> for_each_context(Work& work, Execution& execution, const AdminTarget& target,
                                   ContextRange range, Visit visit) {
  const std::uint64_t count = std::uint64_t{range.last} - range.first + 1;
  while (execution.done < count) {
    if (work.budget <= 0) return Progress::kMore;
    const auto number = static_cast<ContextNumber>(range.first + execution.done);
    if (const auto ok = visit(number); !ok) return fail_on_target(target, ok.error());
    ++execution.done;
    work.budget -= kContextCost + remote_cost();
  }
  return Progress::kDone;
}

}  // namespace softhca::sdxi
