#include "sdxi/context_tables.h"

#include <algorithm>
#include <array>

namespace softhca::sdxi {
namespace {

using spec::err_class;
using spec::err_step;

tl::unexpected<ContextFailure> invalid_context() {
  return tl::unexpected<ContextFailure>(ContextFailure{});
}

tl::unexpected<ContextFailure> log_err(Refusal refusal, ContextNumber number) {
  refusal.context = number;
  return tl::unexpected<ContextFailure>(ContextFailure{refusal});
}

Refusal unreadable(err_step step, const AddressSpace& space, Iova at, std::string_view what) {
  const auto fault = space.explain(at);
  return {.step = step,
          .sub_step = fault.sub_step,
          .err_class = fault.err_class,
          .reason = what,
          .section = "SDXI 4.3.2",
          .value = at};
}

/// Reads a structure whose first word holds vl. SDXI 4.3.2: software may clear vl at any time. The
/// first word is read again at the end, so that a mixture of two entries is never used.
template <class Layout>
bool read_entry(const AddressSpace& space, Iova at, std::span<std::byte> out) {
  if (!space.load_words(at, out)) return false;
  for (int attempt = 0; attempt < 3; ++attempt) {
    const auto first = space.load64(at);
    if (!first) return false;
    if (*first == util::load_le64(out.data())) return true;
    if (!space.load_words(at, out)) return false;
  }
  // The entry keeps changing: it counts as not valid.
  util::MutableView<Layout>(out).set(Layout::vl, 0);
  return true;
}

}  // namespace

bool is_defined(spec::cxtv state) { return !to_string(state).empty(); }

ContextResult<Iova> ContextTables::find_l1(ContextNumber number) const {
  const auto space = memory_.select(registers_.fn_pasid());
  const auto at = spec::address(registers_.cxt_l2, spec::mmio_cxt_l2::lv02_ptr) +
                  number / spec::kContextsPerL1 * spec::cxt_l2_ent::kSize;
  util::Struct<spec::cxt_l2_ent> l2;
  if (!space.load_words(at, l2.bytes())) {
    return log_err(unreadable(err_step::ERRV_CXT_L2, space, at, "CXT_L2_ENT cannot be read"),
                   number);
  }
  if (l2.get(spec::cxt_l2_ent::vl) == 0) return invalid_context();
  return spec::address(l2, spec::cxt_l2_ent::lv01_ptr) +
         number % spec::kContextsPerL1 * spec::cxt_l1_ent::kSize;
}

ContextResult<Iova> ContextTables::read_l1(Iova at, ContextEntry& entry) const {
  using ent = spec::cxt_l1_ent;
  const auto space = memory_.select(registers_.fn_pasid());
  util::Struct<ent> l1;
  if (!read_entry<ent>(space, at, l1.bytes())) {
    return log_err(unreadable(err_step::ERRV_CXT_L1, space, at, "CXT_L1_ENT cannot be read"),
                   entry.number);
  }
  if (l1.get(ent::vl) == 0) return invalid_context();
  if (l1.get(ent::akey_sz) > 8) {
    return log_err(invalid(err_step::ERRV_CXT_L1, err_class::UNSUPPORTED_ENCODING,
                           "CXT_L1_ENT.akey_sz is above 8", "SDXI 3.2.2", l1.get(ent::akey_sz)),
                   entry.number);
  }
  if (l1.get(ent::pv) != 0) {
    if (!memory_.supports_pasid()) {
      return log_err(invalid(err_step::ERRV_CXT_L1, err_class::ILLEGAL_PASID,
                             "CXT_L1_ENT.pv is set, and the function has no PASID support",
                             "SDXI 3.2.2", l1.get(ent::cxt_pasid)),
                     entry.number);
    }
    entry.pasid = l1.get(ent::cxt_pasid);
  }
  entry.akey_ptr = spec::address(l1, ent::akey_ptr);
  entry.akey_sz = static_cast<std::uint8_t>(l1.get(ent::akey_sz));
  entry.max_buffer = static_cast<std::uint8_t>(l1.get(ent::max_buffer));
  entry.opb_000_enb = l1.get(ent::opb_000_enb);
  return spec::address(l1, ent::cxt_ctl_ptr);
}

ContextResult<void> ContextTables::read_ctl(Iova at, ContextEntry& entry) const {
  using ctl_t = spec::cxt_ctl;
  const auto space = memory_.select(registers_.fn_pasid());
  util::Struct<ctl_t> ctl;
  if (!read_entry<ctl_t>(space, at, ctl.bytes())) {
    return log_err(unreadable(err_step::ERRV_CXT_CTL, space, at, "CXT_CTL cannot be read"),
                   entry.number);
  }
  if (ctl.get(ctl_t::vl) == 0) return invalid_context();
  entry.ds_ring_sz = ctl.get(ctl_t::ds_ring_sz);
  const auto ring_max =
      spec::ring_entries_max(registers_.cap0.get(spec::mmio_cap0::max_ds_ring_sz));
  if (entry.ds_ring_sz == 0 || entry.ds_ring_sz > ring_max) {
    return log_err(invalid(err_step::ERRV_CXT_CTL, err_class::ILLEGAL_RING_SIZE,
                           "CXT_CTL.ds_ring_sz is 0 or above the function's limit", "SDXI 3.2.3",
                           entry.ds_ring_sz),
                   entry.number);
  }
  entry.ds_ring_ptr = spec::address(ctl, ctl_t::ds_ring_ptr);
  entry.cxt_sts_ptr = spec::address(ctl, ctl_t::cxt_sts_ptr);
  entry.write_index_ptr = spec::address(ctl, ctl_t::write_index_ptr);
  return {};
}

ContextResult<ContextEntry> ContextTables::walk(ContextNumber number) const {
  ContextEntry entry;
  entry.number = number;
  const auto l1 = find_l1(number);
  if (!l1) return tl::unexpected<ContextFailure>(l1.error());
  const auto ctl = read_l1(*l1, entry);
  if (!ctl) return tl::unexpected<ContextFailure>(ctl.error());
  if (const auto read = read_ctl(*ctl, entry); !read) {
    return tl::unexpected<ContextFailure>(read.error());
  }
  return entry;
}

std::optional<spec::cxtv> ContextTables::read_state(const ContextEntry& entry) const {
  const auto byte = memory_.select(entry.pasid).load8(entry.state());
  if (!byte) return std::nullopt;
  util::Struct<spec::cxt_sts> sts;
  sts.bytes()[0] = std::byte{*byte};
  return static_cast<spec::cxtv>(sts.get(spec::cxt_sts::state));
}

Checked<spec::cxtv> ContextTables::state_of(const ContextEntry& entry) const {
  const auto state = read_state(entry);
  if (!state) {
    auto refusal = unreadable(err_step::ERRV_CXT_STS, memory_.select(entry.pasid), entry.state(),
                              "CXT_STS cannot be read");
    refusal.context = entry.number;
    return refuse(refusal);
  }
  if (!is_defined(*state)) {
    auto refusal = invalid(err_step::ERRV_CXT_STS, err_class::UNSUPPORTED_ENCODING,
                           "CXT_STS.state has a reserved encoding", "SDXI 3.2.4",
                           static_cast<std::uint64_t>(*state));
    refusal.context = entry.number;
    return refuse(refusal);
  }
  return *state;
}

bool ContextTables::write_state(const ContextEntry& entry, spec::cxtv state) const {
  const auto space = memory_.select(entry.pasid);
  return space
      .update<std::uint8_t>(entry.state(),
                            [state](std::uint8_t old) {
                              util::Struct<spec::cxt_sts> sts;
                              sts.bytes()[0] = std::byte{old};
                              sts.set(spec::cxt_sts::state, static_cast<std::uint32_t>(state));
                              return static_cast<std::uint8_t>(sts.bytes()[0]);
                            })
      .has_value();
}

bool ContextTables::is_above_limit(ContextNumber number) const {
  return !registers_.max_cxt_is_legal() || number > registers_.max_cxt();
}

ContextResult<CheckedContext> ContextTables::check(ContextNumber number) const {
  if (is_above_limit(number)) {
    return log_err(
        invalid(err_step::ERRV_DSC_GEN, err_class::ILLEGAL_CXT_INDEX,
                "the context is above MMIO_CTL2.max_cxt, or that above MMIO_CAP1.max_cxt",
                "SDXI 4.3.2", number),
        number);
  }
  if (!registers_.in_gsv_run()) return invalid_context();
  const auto entry = walk(number);
  if (!entry) return tl::unexpected<ContextFailure>(entry.error());
  const auto space = memory_.select(entry->pasid);
  if (!space.load8(entry->ds_ring_ptr)) {
    return log_err(unreadable(err_step::ERRV_DSC_GEN, space, entry->ds_ring_ptr,
                              "the descriptor ring cannot be read"),
                   number);
  }
  if (!space.load64(entry->write_index_ptr)) {
    return log_err(unreadable(err_step::ERRV_WRT_IDX, space, entry->write_index_ptr,
                              "Write_Index cannot be read"),
                   number);
  }
  const auto state = state_of(*entry);
  if (!state) return log_err(state.error(), number);
  return CheckedContext{.entry = *entry, .state = *state};
}

}  // namespace softhca::sdxi
