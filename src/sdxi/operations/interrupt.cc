// Descriptor-driven interrupts (SDXI 5.8): IntrGrp and AdminGrp DSC_ADM_INTR.
#include "sdxi/budget.h"
#include "sdxi/operation.h"

namespace softhca::sdxi {
namespace {

Progress raise(Work& work, const Execution& execution, pcie::Interrupts& interrupts,
               std::uint16_t vector) {
  if (execution.injected.lost_interrupt != 0) return Progress::kDone;
  interrupts.raise(vector);
  work.budget -= kInterruptCost;
  return Progress::kDone;
}

}  // namespace

Checked<Progress> execute_interrupt(Work& work, Execution& execution) {
  const auto akey = execution.as<spec::dsc_intr>().get(spec::dsc_intr::akey);
  const auto target = work.keys.interrupt(work.context, static_cast<std::uint16_t>(akey));
  if (!target) return refuse(target.error());
  // A masked interrupt becomes pending, which only the control thread may do.
  if (pcie::LocalMemoryOnly::active() && !target->interrupts->sends(target->vector)) {
    return refuse(invalid(spec::err_step::ERRV_DSC_GEN, spec::err_class::GENERIC,
                          "the interrupt cannot be sent now", "SDXI 5.8", target->vector));
  }
  return raise(work, execution, *target->interrupts, target->vector);
}

Checked<Progress> execute_admin_interrupt(Work& work, Execution& execution) {
  const auto vector = execution.as<spec::dsc_adm_intr>().get(spec::dsc_adm_intr::intr_num);
  if (vector >= work.interrupts.vectors()) {
    return refuse(invalid(spec::err_step::ERRV_DSC_GEN, spec::err_class::ILLEGAL_INTR_NUM,
                          "intr_num is beyond the MSI-X table", "SDXI 6.6.10", vector));
  }
  return raise(work, execution, work.interrupts, static_cast<std::uint16_t>(vector));
}

}  // namespace softhca::sdxi
