#include "sdxi/error_log.h"
#include "sdxi/keys.h"

namespace softhca::sdxi {
namespace {

using spec::err_class;
using spec::err_step;

/// SDXI 3.3.4: whatever the fault at the target, the requester logs a data buffer error.
tl::unexpected<Refusal> abort_access(const RemoteRequest& request, std::string_view reason) {
  return refuse({.step = err_step::ERRV_DSC_BUF,
                 .sub_step = spec::err_sub_step::SUB_ACCESS,
                 .err_class = err_class::MEMORY_PERMISSION,
                 .buffer = request.buffer,
                 .reason = reason,
                 .section = "SDXI 3.3.4",
                 .value = request.rkey});
}

}  // namespace

tl::unexpected<Refusal> ReceiverKeys::faulty_table(const RemoteRequest& request,
                                                   Refusal refusal) const {
  refusal.step = err_step::ERRV_FN_RKEY;
  refusal.section = "SDXI 3.3.4";
  // The control thread repeats a worker's access, and then logs.
  if (!pcie::LocalMemoryOnly::active())
    log_.record({.refusal = refusal, .reaction = spec::err_reaction::RE_INFORMATIVE});
  return abort_access(request, "the target cannot use its own RKEY_ENT");
}

Checked<void> ReceiverKeys::read(const RemoteRequest& request,
                                 const util::MutableView<spec::rkey_ent>& out) const {
  using ent = spec::rkey_ent;
  if (!registers_.in_gsv_run()) {
    return abort_access(request, "the target function is not active");
  }
  // Check 3, rkey_cap: a function without it has sfunc 0, which no AKey can name.
  const auto sz = registers_.rkey.get(spec::mmio_rkey::sz);
  if (registers_.rkey.get(spec::mmio_rkey::en) == 0 ||
      sz > registers_.cap0.get(spec::mmio_cap0::max_rkey_sz)) {
    return abort_access(request, "the target's RKey table is not enabled, or too large");
  }
  if (request.rkey >= spec::key_entries(sz)) {
    return abort_access(request, "the RKey is beyond the target's table");
  }
  const auto space = memory_.select(registers_.fn_pasid());
  const auto at = spec::address(registers_.rkey, spec::mmio_rkey::ptr) +
                  request.rkey * std::uint64_t{ent::kSize};
  if (!space.load_words(at, out.bytes())) {
    const auto fault = space.explain(at);
    return faulty_table(request, {.step = err_step::ERRV_FN_RKEY,
                                  .sub_step = fault.sub_step,
                                  .err_class = fault.err_class,
                                  .reason = "RKEY_ENT cannot be read",
                                  .value = at});
  }
  if (out.get(ent::vl) == 0) return abort_access(request, "RKEY_ENT.vl is 0");
  if (out.get(ent::req_sfunc) != request.requester) {
    return abort_access(request, "RKEY_ENT.req_sfunc is another function");
  }
  return {};
}

Checked<AddressSpace> ReceiverKeys::admit_memory(const RemoteRequest& request) const {
  using ent = spec::rkey_ent;
  util::Struct<ent> entry;
  if (const auto found = read(request, entry); !found) return refuse(found.error());
  if (entry.get(ent::pv) == 0) return memory_.select(std::nullopt);
  if (!memory_.supports_pasid()) {
    return faulty_table(request,
                        invalid(err_step::ERRV_FN_RKEY, err_class::ILLEGAL_PASID,
                                "RKEY_ENT.pv is set, and the function has no PASID support", "",
                                entry.get(ent::pasid)));
  }
  return memory_.select(entry.get(ent::pasid));
}

Checked<InterruptTarget> ReceiverKeys::admit_interrupt(const RemoteRequest& request) const {
  using ent = spec::rkey_ent;
  util::Struct<ent> entry;
  if (const auto found = read(request, entry); !found) return refuse(found.error());
  if (entry.get(ent::iv) == 0) return abort_access(request, "RKEY_ENT.iv is 0");
  const auto vector = static_cast<std::uint16_t>(entry.get(ent::intr_num));
  if (vector >= interrupts_.vectors()) {
    return faulty_table(request,
                        invalid(err_step::ERRV_FN_RKEY, err_class::ILLEGAL_INTR_NUM,
                                "RKEY_ENT.intr_num is beyond the MSI-X table", "", vector));
  }
  return InterruptTarget{&interrupts_, vector};
}

}  // namespace softhca::sdxi
