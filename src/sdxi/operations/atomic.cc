// AtomicGrp (SDXI 6.3).
#include <type_traits>

#include "sdxi/operation.h"

namespace softhca::sdxi {
namespace {

using atomic_dsc = spec::dsc_atm;
using spec::atomic_subtype;
using spec::err_class;
using spec::err_step;

/// SDXI Table 6-11, at the operand's size.
template <class Word>
Word result(atomic_subtype subtype, Word old, Word op1, Word op2) {
  using Signed = std::make_signed_t<Word>;
  const auto signed_old = static_cast<Signed>(old);
  const auto signed_op1 = static_cast<Signed>(op1);
  switch (subtype) {
    case atomic_subtype::DSC_ATM_SWAP:
      return op1;
    case atomic_subtype::DSC_ATM_UADD:
      return old + op1;
    case atomic_subtype::DSC_ATM_USUB:
      return old - op1;
    case atomic_subtype::DSC_ATM_AND:
      return old & op1;
    case atomic_subtype::DSC_ATM_OR:
      return old | op1;
    case atomic_subtype::DSC_ATM_XOR:
      return old ^ op1;
    case atomic_subtype::DSC_ATM_SMIN:
      return signed_old > signed_op1 ? op1 : old;
    case atomic_subtype::DSC_ATM_SMAX:
      return signed_old < signed_op1 ? op1 : old;
    case atomic_subtype::DSC_ATM_UMIN:
      return old > op1 ? op1 : old;
    case atomic_subtype::DSC_ATM_UMAX:
      return old < op1 ? op1 : old;
    case atomic_subtype::DSC_ATM_UCLAMPI:
      return old >= op1 ? 0 : old + 1;
    case atomic_subtype::DSC_ATM_UCLAMPD:
      return old == 0 || old > op1 ? op1 : old - 1;
    case atomic_subtype::DSC_ATM_CMPSWAP:
      return old == op1 ? op2 : old;
  }
  return old;
}

template <class Word>
Checked<void> perform(const Work& work, const AddressSpace& target, util::View<atomic_dsc> view,
                      Iova at) {
  const auto subtype =
      static_cast<atomic_subtype>(view.get(atomic_dsc::header).get(spec::dsc_header::subtype));
  const auto back = spec::address(view, atomic_dsc::ret_data_ptr);
  const bool returns = view.get(atomic_dsc::nr) == 0;
  // Everything that can be checked is checked before the target changes.
  if (returns && back % sizeof(Word) != 0) {
    return refuse(invalid(err_step::ERRV_ATOMIC, err_class::UNSUPPORTED_ENCODING,
                          "ret_data_ptr is not aligned to the operand", "SDXI 6.3", back));
  }
  // A worker executes all of the operation or none: the control thread repeats what fails.
  if (returns && pcie::LocalMemoryOnly::active() && !work.space.can_write(back, sizeof(Word))) {
    return refuse(invalid(err_step::ERRV_ATOMIC, err_class::MEMORY_ACCESS,
                          "the return data is not local", "SDXI 6.3", back));
  }
  const auto op1 = static_cast<Word>(view.get(atomic_dsc::op1));
  const auto op2 = static_cast<Word>(view.get(atomic_dsc::op2));
  const auto old =
      target.update<Word>(at, [&](Word value) { return result<Word>(subtype, value, op1, op2); });
  if (!old) {
    const auto fault = target.explain(at);
    return refuse({.step = err_step::ERRV_DSC_BUF,
                   .sub_step = fault.sub_step,
                   .err_class = fault.err_class,
                   .buffer = 0,
                   .reason = "the operand in memory cannot be accessed",
                   .section = "SDXI 6.3",
                   .value = at});
  }
  if (!returns) return {};
  // SDXI 3.1: atomic return data goes through the context's address space, not through the AKey.
  if (!work.space.write(back, std::as_bytes(std::span(&*old, 1)))) {
    const auto fault = work.space.explain(back);
    return refuse({.step = err_step::ERRV_ATOMIC,
                   .sub_step = fault.sub_step,
                   .err_class = fault.err_class,
                   .reason = "the atomic return data cannot be written",
                   .section = "SDXI 6.3",
                   .value = back});
  }
  return {};
}

}  // namespace

Checked<Progress> execute_atomic(Work& work, Execution& execution) {
  const auto view = execution.as<atomic_dsc>();
  const auto osz = view.get(atomic_dsc::osz);
  if (osz > 1) {
    return refuse(invalid(err_step::ERRV_DSC_GEN, err_class::UNSUPPORTED_ENCODING,
                          "osz has a reserved encoding", "SDXI 6.3", osz));
  }
  if (osz == 1 && view.get(atomic_dsc::n) != 0) {
    return refuse(invalid(err_step::ERRV_DSC_GEN, err_class::UNSUPPORTED_ENCODING,
                          "addr0 of an 8-byte operand has bit 2 set", "SDXI 6.3", 1));
  }
  if (view.get(atomic_dsc::coh_dst) == static_cast<std::uint32_t>(spec::coherency::RESERVED)) {
    return refuse(invalid(err_step::ERRV_DSC_GEN, err_class::UNSUPPORTED_ENCODING,
                          "a buffer attribute has the reserved coherency 11b", "SDXI 6.1.3", 3));
  }
  const auto target =
      work.keys.memory(work.context, static_cast<std::uint16_t>(view.get(atomic_dsc::akey0)), 0);
  if (!target) return refuse(target.error());
  const auto at = spec::address(view, atomic_dsc::addr0);
  if (!work.atomic_requests) {
    return refuse({.step = err_step::ERRV_DSC_BUF,
                   .sub_step = spec::err_sub_step::SUB_ACCESS,
                   .err_class = err_class::MEMORY_PERMISSION,
                   .buffer = 0,
                   .reason = "AtomicOp Requester Enable is 0",
                   .section = "SDXI 8.4",
                   .value = at});
  }
  const auto done = osz == 0 ? perform<std::uint32_t>(work, *target, view, at)
                             : perform<std::uint64_t>(work, *target, view, at);
  if (!done) return refuse(done.error());
  return Progress::kDone;
}

}  // namespace softhca::sdxi
