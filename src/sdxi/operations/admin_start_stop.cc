// AdminGrp DSC_CXT_START_NM, DSC_CXT_START_RS (SDXI 6.6.3) and DSC_CXT_STOP (SDXI 6.6.4).
#include "sdxi/operations/admin_common.h"

namespace softhca::sdxi {
namespace {

Checked<Progress> execute_start(Work& work, Execution& execution, StartKind kind) {
  const auto view = execution.as<spec::dsc_cxt_start>();
  const auto target = admin_target(work, view);
  if (!target) return refuse(target.error());
  const auto range = context_range(*target, view);
  if (!range) return fail_on_target(*target, range.error());
  return for_each_context(work, execution, *target, *range, [&](ContextNumber number) {
    return target->contexts->start(number, kind);
  });
}

}  // namespace

Checked<Progress> execute_start_normal(Work& work, Execution& execution) {
  return execute_start(work, execution, StartKind::kNormal);
}

Checked<Progress> execute_start_resume(Work& work, Execution& execution) {
  return execute_start(work, execution, StartKind::kResume);
}

std::int64_t signal_started(Work& work, const Execution& execution) {
  using dsc = spec::dsc_cxt_start;
  const auto view = execution.as<dsc>();
  if (execution.operation->execute != execute_start_normal &&
      execution.operation->execute != execute_start_resume) {
    return 0;
  }
  if (view.get(dsc::dv) == 0) return 0;
  const auto target = admin_target(work, view);
  if (!target) return 0;
  // A context of the range that was skipped is not in CXTV_RUN, so its doorbell is ignored.
  const auto first = view.get(dsc::cxt_start), last = view.get(dsc::cxt_end);
  target->contexts->ring(static_cast<ContextNumber>(first), static_cast<ContextNumber>(last),
                         view.get(dsc::db_value));
  return std::int64_t{last} - first + 1;
}

Checked<Progress> execute_stop(Work& work, Execution& execution) {
  using dsc = spec::dsc_cxt_stop;
  const auto view = execution.as<dsc>();
  const auto target = admin_target(work, view);
  if (!target) return refuse(target.error());
  const auto range = context_range(*target, view);
  if (!range) return fail_on_target(*target, range.error());
  const auto cause = target->is_vf ? StopCause::kPfToVf : StopCause::kLocal;
  const bool hard = view.get(dsc::hs) != 0;
  return for_each_context(work, execution, *target, *range, [&](ContextNumber number) {
    return target->contexts->stop(number, cause, hard);
  });
}

}  // namespace softhca::sdxi
