// The error log of a function (SDXI 3.4): sets it up, reads it, and hands out records.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "driver/sdxi/context.h"
#include "driver/sdxi/function.h"
#include "driver/sdxi/word.h"
#include "util/bits.h"

namespace softhca::driver::sdxi {
namespace {

using reg = spec::mmio_register;

ErrorRecord decode(const util::View<spec::errlog_hd_ent>& r) {
  using ent = spec::errlog_hd_ent;
  ErrorRecord record{.step = static_cast<spec::err_step>(r.get(ent::step)),
                     .sub_step = static_cast<spec::err_sub_step>(r.get(ent::sub_step)),
                     .error_class = static_cast<spec::err_class>(r.get(ent::err_class)),
                     .reaction = static_cast<spec::err_reaction>(r.get(ent::re)),
                     .context = {},
                     .descriptor = {},
                     .buffer = {},
                     .target = {}};
  if (r.get(ent::cv) != 0) record.context = static_cast<std::uint16_t>(r.get(ent::cxt_num));
  if (r.get(ent::div) != 0) record.descriptor = r.get(ent::dsc_index);
  if (r.get(ent::bv) != 0) record.buffer = r.get(ent::buf);
  if (r.get(ent::target_valid) != 0) {
    record.target = {static_cast<std::uint16_t>(r.get(ent::target_cxt_num)),
                     static_cast<spec::err_step>(r.get(ent::target_step))};
  }
  return record;
}

}  // namespace

std::string ErrorRecord::to_text() const {
  std::string text{to_string(step)};
  if (const auto name = to_string(error_class); !name.empty()) text += fmt::format(" {}", name);
  if (context) text += fmt::format(", context {}", *context);
  if (descriptor) text += fmt::format(", descriptor {}", *descriptor);
  if (buffer) text += fmt::format(", buffer {}", *buffer);
  if (target) text += fmt::format(", {} at context {}", to_string(target->step), target->context);
  return text;
}

/// Step 7, by SDXI 3.4.2.
util::Result<void> Function::make_error_log() {
  Word<spec::mmio_err_cfg> cfg;
  write(reg::MMIO_ERR_CFG, cfg.value());
  clear_error_status();
  auto log = DmaBuffer::allocate(host_, spec::table_bytes(options_.error_log_power));
  if (!log) return tl::unexpected(log.error());
  error_log_ = std::move(*log);
  write(reg::MMIO_ERR_CTL, 1);
  write(reg::MMIO_ERR_WRT, 0);
  write(reg::MMIO_ERR_RD, 0);
  spec::set_address(cfg, spec::mmio_err_cfg::ptr, error_log_.iova());
  cfg.set(spec::mmio_err_cfg::sz, options_.error_log_power);
  cfg.set(spec::mmio_err_cfg::en, 1);
  write(reg::MMIO_ERR_CFG, cfg.value());
  return {};
}

void Function::clear_error_status() {
  // Ones in other bits would be illegal values of reserved fields (SDXI 9.3).
  Word<spec::mmio_err_sts> all;
  all.set(spec::mmio_err_sts::sts, 1);
  all.set(spec::mmio_err_sts::ovf, 1);
  all.set(spec::mmio_err_sts::err, 1);
  write(reg::MMIO_ERR_STS, all.value());
}

std::span<std::byte> Function::error_slot(std::uint64_t index) const {
  const auto log = error_log_.bytes();
  return log.subspan(index * spec::errlog_hd_ent::kSize % log.size(), spec::errlog_hd_ent::kSize);
}

/// Records already read have vl = 0, as does memory without a record.
bool Function::has_record() const {
  const auto* word = reinterpret_cast<const std::uint32_t*>(error_slot(errors_read_).data());
  return util::part_of(__atomic_load_n(word, __ATOMIC_RELAXED), spec::errlog_hd_ent::vl) != 0;
}

/// Consumes the records of the log, in the order of SDXI 3.4.3. The device writes MMIO_ERR_WRT; its
/// value is not trusted beyond the size of the log.
void Function::read_error_log() {
  using ent = spec::errlog_hd_ent;
  const Word<spec::mmio_err_sts> status(read(reg::MMIO_ERR_STS));
  if (status.get(spec::mmio_err_sts::ovf) != 0) errors_lost_ = true;
  if (status.get(spec::mmio_err_sts::sts) == 0) return;
  auto index = read(reg::MMIO_ERR_RD);
  clear_error_status();  // before MMIO_ERR_WRT is read
  const auto end = read(reg::MMIO_ERR_WRT);
  const auto entries = error_log_.bytes().size() / ent::kSize;
  if (end - index > entries) {
    errors_lost_ = true;
    index = end - entries;
  }
  for (; index != end; ++index) {
    const util::MutableView<ent> record(error_slot(index));
    if (record.get(ent::vl) == 0) {
      errors_lost_ = true;
      continue;
    }
    errors_.push_back(decode(record));
    record.set(ent::vl, 0);
  }
  errors_read_ = end;
  write(reg::MMIO_ERR_RD, end);
  if (errors_.size() <= kErrorsKept) return;
  errors_lost_ = true;
  errors_.erase(errors_.begin(), errors_.end() - kErrorsKept);
}

std::vector<ErrorRecord> Function::take_errors(bool* lost) {
  read_error_log();
  if (lost != nullptr) *lost = errors_lost_;
  errors_lost_ = false;
  return std::exchange(errors_, {});
}

std::vector<ErrorRecord> Function::take_errors_of(std::uint16_t context) {
  read_error_log();
  const auto is_of_context = [context](const auto& record) { return record.context == context; };
  std::vector<ErrorRecord> taken;
  std::ranges::copy_if(errors_, std::back_inserter(taken), is_of_context);
  std::erase_if(errors_, is_of_context);
  return taken;
}

}  // namespace softhca::driver::sdxi
