#include "sdxi/keys.h"

namespace softhca::sdxi {
namespace {

using spec::err_class;
using spec::err_step;

Refusal bad_key(err_class cls, std::string_view reason, std::string_view section,
                std::uint64_t value, std::uint8_t buffer) {
  auto refusal = invalid(err_step::ERRV_DSC_AKEY, cls, reason, section, value);
  refusal.buffer = buffer;
  return refusal;
}

}  // namespace

Checked<void> AccessKeys::read(const ContextEntry& context, std::uint16_t akey, std::uint8_t buffer,
                               const util::MutableView<spec::akey_ent>& out) const {
  const auto loaded = load(context, akey, buffer, out);
  if (auto* trace = memory_.trace()) [[unlikely]] {
    trace->note(util::TraceStep::kKey, loaded ? std::string_view() : loaded.error().reason,
                {{"context", context.number},
                 {"akey", akey},
                 {"buffer", buffer},
                 {"tgt_sfunc", out.get(spec::akey_ent::tgt_sfunc)}});
  }
  return loaded;
}

Checked<void> AccessKeys::load(const ContextEntry& context, std::uint16_t akey, std::uint8_t buffer,
                               const util::MutableView<spec::akey_ent>& out) const {
  const bool table_too_large = context.akey_sz > registers_.ctl2.get(spec::mmio_ctl2::max_akey_sz);
  if (akey >= spec::key_entries(context.akey_sz) || table_too_large) {
    return refuse(bad_key(err_class::ILLEGAL_AKEY_INDEX,
                          "the AKey is beyond the context's AKey table, or that too large",
                          "SDXI 3.2.5", akey, buffer));
  }
  const auto at = context.akey_ptr + akey * std::uint64_t{spec::akey_ent::kSize};
  const auto space = memory_.select(registers_.fn_pasid());
  if (!space.load_words(at, out.bytes())) {
    const auto fault = space.explain(at);
    return refuse({.step = err_step::ERRV_DSC_AKEY,
                   .sub_step = fault.sub_step,
                   .err_class = fault.err_class,
                   .buffer = buffer,
                   .reason = "AKEY_ENT cannot be read",
                   .section = "SDXI 3.2.5",
                   .value = at});
  }
  using ent = spec::akey_ent;
  if (out.get(ent::vl) == 0) {
    return refuse(
        bad_key(err_class::ILLEGAL_AKEY_INDEX, "AKEY_ENT.vl is 0", "SDXI 3.2.5", akey, buffer));
  }
  const bool remote = out.get(ent::tgt_sfunc) != 0;
  if (remote && (out.get(ent::iv) | out.get(ent::pv) | out.get(ent::ste)) != 0) {
    return refuse(bad_key(err_class::RESERVED_FIELD,
                          "AKEY_ENT of a remote function has iv, pv or ste set", "SDXI 3.2.5", akey,
                          buffer));
  }
  return {};
}

Checked<GroupMember*> AccessKeys::target(const util::View<spec::akey_ent>& entry,
                                         std::uint8_t buffer) const {
  const auto sfunc = static_cast<std::uint16_t>(entry.get(spec::akey_ent::tgt_sfunc));
  auto* member =
      registers_.cap1.get(spec::mmio_cap1::rkey_cap) == 0 ? nullptr : group_.find(self_, sfunc);
  if (member == nullptr) {
    return refuse({.step = err_step::ERRV_DSC_BUF,
                   .err_class = err_class::MEMORY_PERMISSION,
                   .buffer = buffer,
                   .reason = "tgt_sfunc is no function of this group that can be reached",
                   .section = "SDXI 3.3.4",
                   .value = sfunc});
  }
  return member;
}

Checked<AddressSpace> AccessKeys::memory(const ContextEntry& context, std::uint16_t akey,
                                         std::uint8_t buffer) const {
  using ent = spec::akey_ent;
  util::Struct<ent> entry;
  if (const auto found = read(context, akey, buffer, entry); !found) return refuse(found.error());
  if (entry.get(ent::tgt_sfunc) == 0) {
    if (entry.get(ent::pv) == 0) return memory_.select(std::nullopt);
    if (!memory_.supports_pasid()) {
      return refuse(bad_key(err_class::ILLEGAL_PASID,
                            "AKEY_ENT.pv is set, and the function has no PASID support",
                            "SDXI 3.2.5", entry.get(ent::pasid), buffer));
    }
    return memory_.select(entry.get(ent::pasid));
  }
  const auto member = target(entry, buffer);
  if (!member) return refuse(member.error());
  const auto own = static_cast<std::uint16_t>(registers_.cap0.get(spec::mmio_cap0::sfunc));
  return (*member)->admit_memory({.requester = own,
                                  .rkey = static_cast<std::uint16_t>(entry.get(ent::rkey)),
                                  .buffer = buffer});
}

Checked<InterruptTarget> AccessKeys::interrupt(const ContextEntry& context,
                                               std::uint16_t akey) const {
  using ent = spec::akey_ent;
  util::Struct<ent> entry;
  if (const auto found = read(context, akey, 0, entry); !found) return refuse(found.error());
  if (entry.get(ent::tgt_sfunc) == 0) {
    const auto vector = static_cast<std::uint16_t>(entry.get(ent::intr_num));
    if (entry.get(ent::iv) == 0) {
      return refuse(bad_key(err_class::ILLEGAL_INTR_NUM, "AKEY_ENT.iv is 0", "SDXI 6.4", akey, 0));
    }
    if (vector >= interrupts_.vectors()) {
      return refuse(bad_key(err_class::ILLEGAL_INTR_NUM,
                            "AKEY_ENT.intr_num is beyond the MSI-X table", "SDXI 6.4", vector, 0));
    }
    return InterruptTarget{&interrupts_, vector};
  }
  const auto member = target(entry, 0);
  if (!member) return refuse(member.error());
  const auto own = static_cast<std::uint16_t>(registers_.cap0.get(spec::mmio_cap0::sfunc));
  return (*member)->admit_interrupt(
      {.requester = own, .rkey = static_cast<std::uint16_t>(entry.get(ent::rkey)), .buffer = 0});
}

}  // namespace softhca::sdxi
