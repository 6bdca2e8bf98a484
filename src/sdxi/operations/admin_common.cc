#include "sdxi/operations/admin_common.h"

namespace softhca::sdxi {
namespace {

using spec::err_class;

tl::unexpected<Refusal> bad_range(err_class cls, std::string_view reason, std::uint64_t value) {
  return refuse(invalid(spec::err_step::ERRV_DSC_GEN, cls, reason, "SDXI 6.6.1", value));
}

}  // namespace

Checked<AdminTarget> admin_target(Work& work, bool vf, std::uint32_t vf_num) {
  if (!vf) return AdminTarget{&work.contexts, false};
  if (work.self.is_vf()) {
    return refuse(invalid(spec::err_step::ERRV_DSC_GEN, err_class::UNSUPPORTED_ENCODING,
                          "vf is set in an operation of a VF", "SDXI 6.6", vf_num));
  }
  auto* member = work.group.vf_of(work.self, static_cast<std::uint16_t>(vf_num));
  if (member == nullptr) {
    return refuse(invalid(spec::err_step::ERRV_DSC_GEN, err_class::UNSUPPORTED_ENCODING,
                          "vf_num is no VF of this function", "SDXI 6.6", vf_num));
  }
  work.other_function = true;
  return AdminTarget{&member->context_control(), true};
}

Checked<ContextRange> context_range(const Registers& registers, std::uint32_t first,
                                    std::uint32_t last) {
  if (first > last)
    return bad_range(err_class::ILLEGAL_CXT_INDEX, "cxt_start is above cxt_end", first);
  if (!registers.max_cxt_is_legal() || last > registers.max_cxt()) {
    return bad_range(err_class::ILLEGAL_CXT_INDEX,
                     "cxt_end is above MMIO_CTL2.max_cxt, or that above MMIO_CAP1.max_cxt", last);
  }
  return ContextRange{static_cast<ContextNumber>(first), static_cast<ContextNumber>(last)};
}

Checked<void> check_rkey_range(const Registers& registers, std::uint32_t first,
                               std::uint32_t last) {
  if (first > last)
    return bad_range(err_class::ILLEGAL_AKEY_INDEX, "rkey_start is above rkey_end", first);
  const auto sz = registers.rkey.get(spec::mmio_rkey::sz);
  if (sz > registers.cap0.get(spec::mmio_cap0::max_rkey_sz)) {
    return bad_range(err_class::LIMIT_EXCEEDED, "MMIO_RKEY.sz is above MMIO_CAP0.max_rkey_sz", sz);
  }
  if (last >= spec::key_entries(sz)) {
    return bad_range(err_class::ILLEGAL_AKEY_INDEX, "rkey_end is beyond the RKey table", last);
  }
  return {};
}

Checked<void> check_akey_range(const ContextControl& contexts, ContextNumber number,
                               std::uint32_t first, std::uint32_t last) {
  if (first > last)
    return bad_range(err_class::ILLEGAL_AKEY_INDEX, "akey_start is above akey_end", first);
  const auto& registers = contexts.registers();
  const auto limit = registers.ctl2.get(spec::mmio_ctl2::max_akey_sz);
  if (limit > registers.cap1.get(spec::mmio_cap1::max_akey_sz)) {
    return bad_range(err_class::LIMIT_EXCEEDED,
                     "MMIO_CTL2.max_akey_sz is above MMIO_CAP1.max_akey_sz", limit);
  }
  if (!registers.in_gsv_run()) return {};
  const auto entry = contexts.tables().walk(number);
  if (!entry) {
    if (entry.error().log_err) return refuse(*entry.error().log_err);
    return {};
  }
  if (entry->akey_sz > limit || last >= spec::key_entries(entry->akey_sz)) {
    auto refusal =
        bad_range(err_class::ILLEGAL_AKEY_INDEX,
                  "akey_end is beyond the context's AKey table, or that too large", last);
    refusal.value().context = number;
    return refusal;
  }
  return {};
}

tl::unexpected<Refusal> fail_on_target(const AdminTarget& target, Refusal refusal) {
  // A VF that is not enabled writes no log (SDXI 4.1.1): the PF then logs the error.
  if (target.is_vf && target.contexts->registers().in_gsv_run()) {
    target.contexts->log_unstopped(refusal);
    refusal.logged = true;
  }
  return refuse(refusal);
}

}  // namespace softhca::sdxi
