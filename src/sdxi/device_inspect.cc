// Device::inspect_device: registers, contexts, RKeys, the error log and the fault rules.
#include <fmt/format.h>

#include "sdxi/device.h"
#include "sdxi/key_inspect.h"

namespace softhca::sdxi {
namespace {

/// Number of error log records shown, the newest ones.
constexpr std::uint64_t kRecordsShown = 16;
/// Cost of reading one entry of mapped memory.
constexpr std::int64_t kEntryWork = 100;

using reg = spec::mmio_register;

/// Shows a register as software reads it.
template <class Layout>
void inspect_register(const Mmio& mmio, reg name, util::InspectNode& out) {
  util::Struct<Layout> content;
  util::store_le64(content.bytes().data(), mmio.value_of(name));
  inspect_fields(util::View<Layout>(content.bytes()), out.child(to_string(name)));
}

void inspect_registers(const Mmio& mmio, util::InspectNode& out) {
  inspect_register<spec::mmio_ctl0>(mmio, reg::MMIO_CTL0, out);
  inspect_register<spec::mmio_grp_enum>(mmio, reg::MMIO_GRP_ENUM, out);
  inspect_register<spec::mmio_ctl2>(mmio, reg::MMIO_CTL2, out);
  inspect_register<spec::mmio_sts0>(mmio, reg::MMIO_STS0, out);
  inspect_register<spec::mmio_cap0>(mmio, reg::MMIO_CAP0, out);
  inspect_register<spec::mmio_cap1>(mmio, reg::MMIO_CAP1, out);
  inspect_register<spec::mmio_version>(mmio, reg::MMIO_VERSION, out);
  inspect_register<spec::mmio_cxt_l2>(mmio, reg::MMIO_CXT_L2, out);
  inspect_register<spec::mmio_rkey>(mmio, reg::MMIO_RKEY, out);
  inspect_register<spec::mmio_err_ctl>(mmio, reg::MMIO_ERR_CTL, out);
  inspect_register<spec::mmio_err_sts>(mmio, reg::MMIO_ERR_STS, out);
  inspect_register<spec::mmio_err_cfg>(mmio, reg::MMIO_ERR_CFG, out);
  inspect_register<spec::mmio_mb_ctl>(mmio, reg::MMIO_MB_CTL, out);
}

void inspect_record(util::View<spec::errlog_hd_ent> record, util::InspectNode& out) {
  using ent = spec::errlog_hd_ent;
  inspect_enum("step", static_cast<spec::err_step>(record.get(ent::step)), out);
  inspect_enum("sub_step", static_cast<spec::err_sub_step>(record.get(ent::sub_step)), out);
  inspect_enum("err_class", static_cast<spec::err_class>(record.get(ent::err_class)), out);
  inspect_enum("re", static_cast<spec::err_reaction>(record.get(ent::re)), out);
  if (record.get(ent::cv) != 0) out.add("cxt_num", record.get(ent::cxt_num));
  if (record.get(ent::div) != 0) out.add("dsc_index", record.get(ent::dsc_index));
  if (record.get(ent::bv) != 0) out.add("buf", record.get(ent::buf));
  if (record.get(ent::target_valid) == 0) return;
  inspect_enum("target_step", static_cast<spec::err_step>(record.get(ent::target_step)), out);
  out.add("target_cxt_num", record.get(ent::target_cxt_num));
}

void inspect_error_log(const Registers& registers, const AddressSpace& space,
                       util::InspectNode& out) {
  using ent = spec::errlog_hd_ent;
  using cfg = spec::mmio_err_cfg;
  const auto write = registers.err_wrt.get(spec::mmio_err_wrt::index);
  const auto read = registers.err_rd.get(spec::mmio_err_rd::index);
  out.add("write_index", write);
  out.add("read_index", read);
  if (registers.err_cfg.get(cfg::en) == 0) return;
  const auto entries = spec::table_bytes(registers.err_cfg.get(cfg::sz)) / ent::kSize;
  const auto shown = std::min({write - read, entries, kRecordsShown});
  if (shown < write - read) out.add("shown", fmt::format("{} of {}", shown, write - read));
  auto& list = out.list("newest_unread");
  for (auto index = write - shown; index != write; ++index) {
    alignas(8) std::array<std::byte, ent::kSize> bytes{};
    const auto at =
        spec::address(registers.err_cfg, cfg::ptr) + index % entries * std::uint64_t{ent::kSize};
    if (!space.load_words(at, bytes)) return inspect_unreadable("unreadable_records", out);
    auto& one = list.child(fmt::format("record {}", index));
    one.add("index", index);
    inspect_record(util::View<ent>(bytes), one);
  }
}

void inspect_fault(const Faults::Entry& entry, util::InspectNode& list) {
  auto& one = list.child(fmt::format("fault {}", entry.id));
  one.add("number", entry.id);
  one.add("rule", to_text(entry.rule));
  one.add("matched", entry.matched);
  one.add("fired", entry.fired);
}

void inspect_rkeys(const Registers& registers, const AddressSpace& space, util::Inspection& out) {
  const bool there =
      registers.gsv() != spec::fn_gsv::GSV_STOP && registers.rkey.get(spec::mmio_rkey::en) != 0;
  inspect_key_table<spec::rkey_ent>(
      space, spec::address(registers.rkey, spec::mmio_rkey::ptr),
      {.name = "rkeys",
       .end = spec::key_entries(registers.rkey.get(spec::mmio_rkey::sz)),
       .count = std::nullopt,
       .look_work = kEntryWork,
       .there = there},
      "rkey", out);
}

}  // namespace

void Device::inspect_device(util::Inspection& out) const {
  out.part("function", [this](util::InspectNode& function) {
    function.add("state", to_string(registers_.gsv()));
    function.add("sfunc", sfunc_);
    if (pf_ != nullptr) {
      function.add("vf_of", pf_->name());
      function.add("vf_num", vf_num_);
    }
    function.add("error_reports", log_.reports());
  });
  out.part("registers", [this](auto& node) { inspect_registers(mmio_, node); });
  contexts_.inspect(out);
  const auto space = memory_.select(registers_.fn_pasid());
  inspect_rkeys(registers_, space, out);
  out.part("error_log", [&](auto& node) { inspect_error_log(registers_, space, node); });
  mailboxes_.inspect(out);
  const auto rules = group_.faults().rules();
  out.list(
      {.name = "faults_of_the_group", .end = rules.size(), .count = rules.size()},
      [&](std::uint64_t place) { return &rules[place]; }, inspect_fault);
}

}  // namespace softhca::sdxi
