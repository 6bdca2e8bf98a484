// AdminGrp DSC_SYNC (SDXI 6.6.9). Updates take effect immediately, so that it waits for stop
// actions and doorbells only.
#include "sdxi/operations/admin_common.h"

namespace softhca::sdxi {
namespace {

using sync_dsc = spec::dsc_sync;
using spec::sync_filter;

Checked<Progress> check_ranges(Work& work, Execution& execution, const AdminTarget& target,
                               sync_filter filter) {
  const auto view = execution.as<sync_dsc>();
  if (filter == sync_filter::SYNC_FN) return Progress::kDone;
  if (filter == sync_filter::SYNC_RKEY) {
    const auto ok = check_rkey_range(target.contexts->registers(), view.get(sync_dsc::key_start),
                                     view.get(sync_dsc::key_end));
    if (!ok) return fail_on_target(target, ok.error());
    return Progress::kDone;
  }
  const auto range = context_range(target, view);
  if (!range) return fail_on_target(target, range.error());
  if (filter != sync_filter::SYNC_AKEY) return Progress::kDone;
  return for_each_context(work, execution, target, *range, [&](ContextNumber number) {
    return check_akey_range(*target.contexts, number, view.get(sync_dsc::key_start),
                            view.get(sync_dsc::key_end));
  });
}

}  // namespace

Checked<Progress> execute_sync(Work& work, Execution& execution) {
  const auto view = execution.as<sync_dsc>();
  const auto filter = static_cast<sync_filter>(view.get(sync_dsc::flt));
  if (to_string(filter).empty()) {
    return refuse(invalid(spec::err_step::ERRV_DSC_GEN, spec::err_class::UNSUPPORTED_ENCODING,
                          "flt has a reserved encoding", "SDXI 6.6.9", view.get(sync_dsc::flt)));
  }
  const auto target = admin_target(work, view);
  if (!target) return refuse(target.error());
  const auto& contexts = *target->contexts;
  if (execution.ticket == 0) {
    const auto checked = check_ranges(work, execution, *target, filter);
    if (!checked || *checked != Progress::kDone) return checked;
    execution.ticket = contexts.doorbells_received() + 1;
  }
  if (!contexts.doorbells_evaluated(execution.ticket - 1)) return Progress::kWaiting;
  if (filter == sync_filter::SYNC_STOP &&
      contexts.stopping(static_cast<ContextNumber>(view.get(sync_dsc::cxt_start)),
                        static_cast<ContextNumber>(view.get(sync_dsc::cxt_end)), &work.contexts,
                        work.budget)) {
    return Progress::kWaiting;
  }
  return Progress::kDone;
}

}  // namespace softhca::sdxi
