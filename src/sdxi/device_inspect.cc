// Device::inspect_device: registers, contexts, RKeys, the error log and the fault rules.
#include <fmt/format.h>

#include "sdxi/device.h"
#include "sdxi/key_inspect.h"

namespace softhca::sdxi {
namespace {

/// Error log records that are shown, the newest ones.
constexpr std::uint64_t kRecordsShown = 16;

template <class Layout>
void inspect_register(std::string_view name, const util::Struct<Layout>& content,
                      util::InspectNode& out) {
  inspect_fields(util::View<Layout>(content.bytes()), out.child(name));
}

void inspect_registers(const Registers& registers, util::InspectNode& out) {
  inspect_register("MMIO_CTL0", registers.ctl0, out);
  inspect_register("MMIO_CTL2", registers.ctl2, out);
  inspect_register("MMIO_STS0", registers.sts0, out);
  inspect_register("MMIO_CAP0", registers.cap0, out);
  inspect_register("MMIO_CAP1", registers.cap1, out);
  inspect_register("MMIO_CXT_L2", registers.cxt_l2, out);
  inspect_register("MMIO_RKEY", registers.rkey, out);
  inspect_register("MMIO_ERR_CTL", registers.err_ctl, out);
  inspect_register("MMIO_ERR_STS", registers.err_sts, out);
  inspect_register("MMIO_ERR_CFG", registers.err_cfg, out);
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
  auto& list = out.list("newest_unread");
  for (auto index = write - shown; index != write; ++index) {
    alignas(8) std::array<std::byte, ent::kSize> bytes{};
    const auto at =
        spec::address(registers.err_cfg, cfg::ptr) + index % entries * std::uint64_t{ent::kSize};
    if (!space.load_words(at, bytes)) return out.add("unreadable", true);
    auto& one = list.child(fmt::format("record {}", index));
    one.add("index", index);
    inspect_record(util::View<ent>(bytes), one);
  }
}

void inspect_faults(const Faults& faults, util::InspectNode& out) {
  for (const auto& entry : faults.rules()) {
    auto& one = out.child(fmt::format("fault {}", entry.id));
    one.add("number", entry.id);
    one.add("rule", to_text(entry.rule));
    one.add("matched", entry.matched);
    one.add("fired", entry.fired);
  }
}

}  // namespace

void Device::inspect_device(util::InspectNode& out) const {
  auto& function = out.child("function");
  function.add("state", to_string(registers_.gsv()));
  function.add("sfunc", sfunc_);
  if (pf_ != nullptr) {
    function.add("vf_of", pf_->name());
    function.add("vf_num", vf_num_);
  }
  function.add("error_reports", log_.reports());
  inspect_registers(registers_, out.child("registers"));
  const auto space = memory_.select(registers_.fn_pasid());
  // A stopped function's tables are not set up, or no longer.
  if (registers_.gsv() != spec::fn_gsv::GSV_STOP) {
    contexts_.inspect(out);
    if (registers_.rkey.get(spec::mmio_rkey::en) != 0) {
      inspect_keys<spec::rkey_ent>(space, spec::address(registers_.rkey, spec::mmio_rkey::ptr),
                                   spec::key_entries(registers_.rkey.get(spec::mmio_rkey::sz)),
                                   "rkey", out);
    }
  }
  inspect_error_log(registers_, space, out.child("error_log"));
  inspect_faults(group_.faults(), out.list("faults_of_the_group"));
}

}  // namespace softhca::sdxi
