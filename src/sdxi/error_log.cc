#include "sdxi/error_log.h"

#include <fmt/format.h>

namespace softhca::sdxi {
namespace {

using spec::err_step;

/// The fields that Table 3-10 requires with a step.
struct RequiredFields {
  bool descriptor;
  bool buffer;
};

constexpr RequiredFields required_fields(err_step step) {
  switch (step) {
    case err_step::ERRV_DSC_GEN:
    case err_step::ERRV_DSC_CSB:
    case err_step::ERRV_ATOMIC:
      return {true, false};
    case err_step::ERRV_DSC_BUF:
    case err_step::ERRV_DSC_AKEY:
      return {true, true};
    default:
      return {false, false};
  }
}

/// True if the faulty structures belong to another context than the reported one.
bool is_elsewhere(const ErrorReport& report) {
  return report.refusal.context && report.context && *report.refusal.context != *report.context;
}

void encode(const ErrorReport& report, const util::MutableView<spec::errlog_hd_ent>& record) {
  using ent = spec::errlog_hd_ent;
  const auto& refusal = report.refusal;
  // An administrative descriptor failed because of another context's state. cxt_num is the context
  // that `re` is about (SDXI Table 3-9), and the step that failed is the execution of the
  // descriptor.
  const bool elsewhere = is_elsewhere(report);
  auto step = elsewhere ? err_step::ERRV_DSC_GEN : refusal.step;
  if (elsewhere) {
    record.set(ent::target_valid, 1);
    record.set(ent::target_cxt_num, *refusal.context);
    record.set(ent::target_step, static_cast<std::uint32_t>(refusal.step));
  }
  // The descriptor is in the ring of a PF. ERRV_INT needs neither a descriptor index nor a context.
  if (required_fields(step).descriptor && !report.descriptor) step = err_step::ERRV_INT;
  const auto fields = required_fields(step);
  record.set(ent::vl, 1);
  record.set(ent::type, spec::kErrorRecordType);
  record.set(ent::step, static_cast<std::uint32_t>(step));
  record.set(ent::sub_step, static_cast<std::uint32_t>(refusal.sub_step));
  record.set(ent::err_class, static_cast<std::uint32_t>(refusal.err_class));
  record.set(ent::re, static_cast<std::uint32_t>(report.reaction));
  if (report.context) {
    record.set(ent::cv, 1);
    record.set(ent::cxt_num, *report.context);
  }
  if (fields.descriptor) {
    record.set(ent::div, 1);
    record.set(ent::dsc_index, *report.descriptor);
  }
  if (fields.buffer) {
    record.set(ent::bv, 1);
    record.set(ent::buf, refusal.buffer.value_or(0));
  }
}

}  // namespace

void ErrorLog::record(const ErrorReport& report) {
  using sts = spec::mmio_err_sts;
  ++reports_;
  say(report);
  const bool enabled = registers_.err_cfg.get(spec::mmio_err_cfg::en) != 0;
  // SDXI 9.3 MMIO_ERR_STS.err: while it is set, nothing is logged and the register does not change.
  if (!enabled || registers_.err_sts.get(sts::err) != 0) return;
  if (!write_record(report)) registers_.err_sts.set(sts::err, 1);
  if (registers_.err_sts.get(sts::sts) != 0) return;
  registers_.err_sts.set(sts::sts, 1);
  if (registers_.err_ctl.get(spec::mmio_err_ctl::en) != 0) own_interrupt_.raise();
}

bool ErrorLog::write_record(const ErrorReport& report) {
  const auto sz = registers_.err_cfg.get(spec::mmio_err_cfg::sz);
  const auto log_sz = spec::table_bytes(sz);
  if (log_sz > std::uint64_t{1} << (registers_.cap1.get(spec::mmio_cap1::max_errlog_sz) + 23)) {
    return false;
  }
  const auto write = registers_.err_wrt.get(spec::mmio_err_wrt::index);
  const auto read = registers_.err_rd.get(spec::mmio_err_rd::index);
  if (write - read >= log_sz / spec::errlog_hd_ent::kSize) {
    registers_.err_sts.set(spec::mmio_err_sts::ovf, 1);
    return false;
  }
  if (auto* trace = memory_.trace()) {
    trace->note(util::TraceStep::kEvent, report.refusal.reason,
                {{"class", static_cast<std::uint64_t>(report.refusal.err_class)},
                 {"context", report.context.value_or(0)},
                 {"index", write}});
  }
  util::Struct<spec::errlog_hd_ent> record;
  encode(report, record);
  const auto space = memory_.select(registers_.fn_pasid());
  const auto at = spec::address(registers_.err_cfg, spec::mmio_err_cfg::ptr) +
                  write * spec::errlog_hd_ent::kSize % log_sz;
  // SDXI 3.4: a record is written atomically. The word with vl is written last.
  if (!space.write(at + 8, record.bytes().subspan(8)) ||
      !space.store64(at, util::load_le64(record.bytes().data()))) {
    return false;
  }
  registers_.err_wrt.set(spec::mmio_err_wrt::index, write + 1);
  return true;
}

void ErrorLog::say(const ErrorReport& report) {
  std::uint64_t held_back = 0;
  if (!util::log_enabled(util::LogLevel::kWarning) || !limiter_.allow(now_, &held_back)) return;
  std::string where;
  if (report.context) where += fmt::format(" context {}", *report.context);
  if (report.descriptor) where += fmt::format(" descriptor {}", *report.descriptor);
  if (report.refusal.buffer) where += fmt::format(" buffer {}", *report.refusal.buffer);
  if (is_elsewhere(report)) where += fmt::format(" at context {}", *report.refusal.context);
  const auto& refusal = report.refusal;
  util::log(util::LogLevel::kWarning, "{}:{}: {}: {} ({:#x}) [{}]{}", name_, where,
            to_string(refusal.step), refusal.reason, refusal.value, refusal.section,
            held_back == 0 ? "" : fmt::format(", {} more not shown", held_back));
}

}  // namespace softhca::sdxi
