#include "pcie/function.h"

#include <algorithm>
#include <utility>

namespace softhca::pcie {
namespace {

/// The structure of the MSI-X BAR at an offset, and the bytes until its end.
struct Place {
  enum class Kind : std::uint8_t { kRegister, kTable, kPba } kind;
  std::uint64_t offset;  ///< from the start of the structure; for registers, of the BAR
  std::uint64_t left;    ///< bytes to the end of the structure, or to the start of the next one
};

Place locate(const Msix::Layout& msix, std::uint64_t offset) {
  const auto table = offset - msix.table_offset;  // wraps to a large number below the table
  if (table < msix.table_size()) return {Place::Kind::kTable, table, msix.table_size() - table};
  const auto pba = offset - msix.pba_offset;
  if (pba < msix.pba_size()) return {Place::Kind::kPba, pba, msix.pba_size() - pba};
  auto left = UINT64_MAX - offset;
  if (offset < msix.table_offset) left = std::min(left, msix.table_offset - offset);
  if (offset < msix.pba_offset) left = std::min(left, msix.pba_offset - offset);
  return {Place::Kind::kRegister, offset, left};
}

}  // namespace

Function::Function(std::string name, const ConfigSpace::Identity& identity,
                   std::span<const Bar> bars, const Msix::Layout& msix)
    : name_(std::move(name)),
      config_(identity, bars, msix),
      interrupts_(msix),
      msix_begin_(std::min(msix.table_offset, msix.pba_offset)),
      msix_end_(std::max(std::uint64_t{msix.table_offset} + msix.table_size(),
                         std::uint64_t{msix.pba_offset} + msix.pba_size())) {
  apply_may_send();
}

void Function::add_msi(std::uint16_t vectors) {
  interrupts_.add_msi(vectors);
  config_.add_msi(vectors);
  apply_may_send();
}

void Function::set_trace(util::Trace& trace) {
  trace_ = &trace;
  dma_.set_tap(this);
  interrupts_.set_trace(&trace);
  trace_device(trace);
}

void Function::handle_dma(Iova iova, std::size_t size, DmaAccess access) {
  const auto step =
      access == DmaAccess::kRead ? util::TraceStep::kDmaRead : util::TraceStep::kDmaWrite;
  trace_->note(step, {}, {{"address", iova}, {"bytes", size}});
}

void Function::apply_may_send() {
  const bool enabled = config_.may_send_requests();
  dma_.set_bus_master(enabled);
  interrupts_.set_bus_master(enabled);
}

void Function::read_bar(unsigned index, std::uint64_t offset, std::span<std::byte> out) {
  if (!config_.in_d0()) {
    std::fill(out.begin(), out.end(), std::byte{0xff});
    return;
  }
  const auto size = index < kBarCount ? bar(index).size : 0;
  if (offset > size || out.size() > size - offset) {
    std::fill(out.begin(), out.end(), std::byte{0});
    return;
  }
  if (index != msix().layout().bar) return read_register(index, offset, out);
  while (!out.empty()) {
    const auto place = locate(msix().layout(), offset);
    const auto part = out.first(std::min<std::uint64_t>(out.size(), place.left));
    switch (place.kind) {
      case Place::Kind::kRegister:
        read_register(index, offset, part);
        break;
      case Place::Kind::kTable:
        msix().read_table(static_cast<std::uint32_t>(place.offset), part);
        break;
      case Place::Kind::kPba:
        msix().read_pba(static_cast<std::uint32_t>(place.offset), part);
        break;
    }
    out = out.subspan(part.size());
    offset += part.size();
  }
}

void Function::write_bar(unsigned index, std::uint64_t offset, std::span<const std::byte> in) {
  if (!config_.in_d0() || index >= kBarCount) return;
  const auto size = bar(index).size;
  if (offset > size || in.size() > size - offset) return;
  // Fast path for doorbells.
  if (offset >= msix_end_ || offset + in.size() <= msix_begin_ || index != msix().layout().bar) {
    return write_register(index, offset, in);
  }
  write_msix_bar(offset, in);
}

/// Writes to MSI-X structures, or to registers on both sides of them.
[[gnu::noinline]] void Function::write_msix_bar(std::uint64_t offset,
                                                std::span<const std::byte> in) {
  while (!in.empty()) {
    const auto place = locate(msix().layout(), offset);
    const auto part = in.first(std::min<std::uint64_t>(in.size(), place.left));
    switch (place.kind) {
      case Place::Kind::kRegister:
        write_register(msix().layout().bar, offset, part);
        break;
      case Place::Kind::kTable:
        msix().write_table(static_cast<std::uint32_t>(place.offset), part);
        break;
      case Place::Kind::kPba:
        break;  // read-only to software (PCIe 5.0 7.7.2.10)
    }
    in = in.subspan(part.size());
    offset += part.size();
  }
}

void Function::read_config(std::uint32_t offset, std::span<std::byte> out) {
  if (const auto* msi = interrupts_.msi()) config_.set_msi_pending(msi->pending());
  config_.read(offset, out);
}

void Function::write_config(std::uint32_t offset, std::span<const std::byte> in) {
  const Paused paused(threads_);
  const auto effects = config_.write(offset, in);
  if (effects.function_level_reset) {
    reset();
    return;
  }
  apply_may_send();
  if (effects.msix_control) {
    msix().set_control(config_.msix_enabled(), config_.msix_function_masked());
  }
  if (effects.msi_control) interrupts_.msi()->set_control(config_.msi_control());
}

void Function::reset() {
  const Paused paused(threads_);
  config_.reset();
  interrupts_.reset();
  apply_may_send();
  reset_device();
}

}  // namespace softhca::pcie
