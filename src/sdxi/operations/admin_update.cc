// AdminGrp updates (SDXI 6.6.5 to 6.6.8). Tables and keys are read at every use, and the cached
// entry of a running context is read again before its next turn. So an update is complete as soon
// as it begins.
#include "sdxi/operations/admin_common.h"

namespace softhca::sdxi {

Checked<Progress> execute_function_update(Work& work, Execution& execution) {
  const auto target = admin_target(work, execution.as<spec::dsc_fn_upd>());
  if (!target) return refuse(target.error());
  target->contexts->update();
  return Progress::kDone;
}

Checked<Progress> execute_context_update(Work& work, Execution& execution) {
  using dsc = spec::dsc_cxt_upd;
  const auto view = execution.as<dsc>();
  const auto level = view.get(dsc::tgt_pcd);
  if (to_string(static_cast<spec::tgt_pcd>(level)).empty()) {
    return refuse(invalid(spec::err_step::ERRV_DSC_GEN, spec::err_class::UNSUPPORTED_ENCODING,
                          "tgt_pcd has a reserved encoding", "SDXI 6.6.6", level));
  }
  const auto target = admin_target(work, view);
  if (!target) return refuse(target.error());
  const auto range = context_range(*target, view);
  if (!range) return fail_on_target(*target, range.error());
  target->contexts->update();
  return Progress::kDone;
}

Checked<Progress> execute_akey_update(Work& work, Execution& execution) {
  using dsc = spec::dsc_akey_upd;
  const auto view = execution.as<dsc>();
  const auto target = admin_target(work, view);
  if (!target) return refuse(target.error());
  const auto range = context_range(*target, view);
  if (!range) return fail_on_target(*target, range.error());
  return for_each_context(work, execution, *target, *range, [&](ContextNumber number) {
    return check_akey_range(*target->contexts, number, view.get(dsc::akey_start),
                            view.get(dsc::akey_end));
  });
}

Checked<Progress> execute_rkey_update(Work& work, Execution& execution) {
  using dsc = spec::dsc_rkey_upd;
  const auto view = execution.as<dsc>();
  const auto target = admin_target(work, view);
  if (!target) return refuse(target.error());
  const auto ok = check_rkey_range(target->contexts->registers(), view.get(dsc::rkey_start),
                                   view.get(dsc::rkey_end));
  if (!ok) return fail_on_target(*target, ok.error());
  return Progress::kDone;
}

}  // namespace softhca::sdxi
