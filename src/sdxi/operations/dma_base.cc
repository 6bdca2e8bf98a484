// DmaBaseGrp (SDXI 6.2): no operation, immediate write, copy, repeat copy.
#include <algorithm>

#include "sdxi/budget.h"
#include "sdxi/copy_bytes.h"
#include "sdxi/operation.h"

namespace softhca::sdxi {
namespace {

using spec::err_class;
using spec::err_step;

/// One of a descriptor's data buffers.
struct Buffer {
  AddressSpace space;
  Iova at;
  std::uint8_t number;  ///< as in the error log record
};

tl::unexpected<Refusal> inaccessible(const Buffer& buffer, std::string_view reason) {
  const auto fault = buffer.space.explain(buffer.at);
  return refuse({.step = err_step::ERRV_DSC_BUF,
                 .sub_step = fault.sub_step,
                 .err_class = fault.err_class,
                 .buffer = buffer.number,
                 .reason = reason,
                 .section = "SDXI 6.2",
                 .value = buffer.at});
}

/// SDXI Table 6-5.
Checked<void> check_coherency(std::uint32_t coherency) {
  if (coherency == static_cast<std::uint32_t>(spec::coherency::RESERVED)) {
    return refuse(invalid(err_step::ERRV_DSC_GEN, err_class::UNSUPPORTED_ENCODING,
                          "a buffer attribute has the reserved coherency 11b", "SDXI 6.1.3",
                          coherency));
  }
  return {};
}

Checked<void> check_max_buffer(const Work& work, std::uint64_t bytes) {
  if (bytes <= max_buffer_bytes(work.registers, work.context)) return {};
  return refuse(invalid(err_step::ERRV_DSC_GEN, err_class::LIMIT_MAX_BUFFER,
                        "the buffer is larger than max_buffer", "SDXI 6.2.3", bytes));
}

/// Copies up to `size` of a descriptor's `whole` bytes, limited by one piece on each side and by
/// the budget. Returns the bytes copied; with helpers they may exceed the budget.
Checked<std::uint64_t> copy_piece(const Work& work, const Buffer& from, const Buffer& to,
                                  std::uint64_t size, std::uint64_t whole) {
  const auto allowed = std::min(size, static_cast<std::uint64_t>(work.budget));
  const auto source = from.space.piece(from.at, size, pcie::DmaAccess::kRead);
  const auto target = to.space.piece(to.at, size, pcie::DmaAccess::kWrite);
  if (!source.empty() && !target.empty()) {
    const std::uint64_t both = std::min(source.size(), target.size());
    if (work.thread.pool != nullptr) {
      const auto done = work.thread.pool->copy_together({target.data(), source.data(), both, whole},
                                                        allowed, work.thread);
      if (done != 0) return done;
    }
    const auto length = std::min(both, allowed);
    copy_bytes(target.data(), source.data(), length, whole);
    return length;
  }
  const auto bounce = work.thread.bounce;
  if (bounce.empty()) {
    return source.empty() ? inaccessible(from, "the source is not local")
                          : inaccessible(to, "the destination is not local");
  }
  // One side is memory that only a peer can reach, or is not mapped. The length of a local piece
  // limits the copy; trying shows how far the other side reaches.
  const auto limit =
      std::min<std::uint64_t>({allowed, bounce.size(), source.empty() ? size : source.size(),
                               target.empty() ? size : target.size()});
  const auto part = bounce.first(static_cast<std::size_t>(limit));
  if (!from.space.read(from.at, part)) return inaccessible(from, "the source cannot be read");
  if (!to.space.write(to.at, part)) return inaccessible(to, "the destination cannot be written");
  return limit;
}

/// The address space of akey1; most copies name the same key twice.
template <class Layout>
Checked<AddressSpace> destination(const Work& work, util::View<Layout> view,
                                  const AddressSpace& source) {
  if (view.get(Layout::akey1) == view.get(Layout::akey0)) return source;
  return work.keys.memory(work.context, static_cast<std::uint16_t>(view.get(Layout::akey1)), 1);
}

/// True if the address exceeds the address space, which then reaches nothing.
bool wraps(Iova at, std::uint64_t offset) { return at + offset < at; }

}  // namespace

std::uint64_t max_buffer_bytes(const Registers& registers, const ContextEntry& context) {
  return spec::buffer_bytes(
      std::min({std::uint32_t{context.max_buffer}, registers.ctl2.get(spec::mmio_ctl2::max_buffer),
                registers.cap1.get(spec::mmio_cap1::max_buffer)}));
}

Checked<Progress> execute_nop(Work&, Execution&) { return Progress::kDone; }

Checked<Progress> execute_write_immediate(Work& work, Execution& execution) {
  using dsc = spec::dsc_dmab_wrt_imm;
  const auto view = execution.as<dsc>();
  if (const auto ok = check_coherency(view.get(dsc::coh_dst)); !ok) return refuse(ok.error());
  const auto space =
      work.keys.memory(work.context, static_cast<std::uint16_t>(view.get(dsc::akey0)), 0);
  if (!space) return refuse(space.error());
  const Buffer to{*space, view.get(dsc::addr0), 0};
  const auto data = view.get(dsc::data).first(view.get(dsc::bsize) + 1);
  if (!to.space.write(to.at, data)) return inaccessible(to, "the destination cannot be written");
  return Progress::kDone;
}

Checked<Progress> execute_copy(Work& work, Execution& execution) {
  using dsc = spec::dsc_dmab_copy;
  const auto view = execution.as<dsc>();
  const auto size = std::uint64_t{view.get(dsc::size)} + 1;
  if (execution.done == 0) {
    if (const auto ok = check_coherency(view.get(dsc::coh_src)); !ok) return refuse(ok.error());
    if (const auto ok = check_coherency(view.get(dsc::coh_dst)); !ok) return refuse(ok.error());
    if (const auto ok = check_max_buffer(work, size); !ok) return refuse(ok.error());
  }
  // Keys are looked up again in every turn: the target of a remote key may have stopped meanwhile.
  const auto from =
      work.keys.memory(work.context, static_cast<std::uint16_t>(view.get(dsc::akey0)), 0);
  if (!from) return refuse(from.error());
  const auto to = destination(work, view, *from);
  if (!to) return refuse(to.error());
  while (execution.done < size) {
    if (work.budget <= 0) return Progress::kMore;
    const Buffer source{*from, view.get(dsc::addr0) + execution.done, 0};
    const Buffer target{*to, view.get(dsc::addr1) + execution.done, 1};
    if (wraps(view.get(dsc::addr0), execution.done))
      return inaccessible(source, "address overflow");
    if (wraps(view.get(dsc::addr1), execution.done))
      return inaccessible(target, "address overflow");
    const auto copied = copy_piece(work, source, target, size - execution.done, size);
    if (!copied) return refuse(copied.error());
    execution.done += *copied;
    work.budget -= static_cast<std::int64_t>(*copied) + remote_cost();
  }
  return Progress::kDone;
}

Checked<Progress> execute_repeat_copy(Work& work, Execution& execution) {
  using dsc = spec::dsc_dmab_repcopy;
  constexpr std::uint64_t kUnit = 4096;
  const auto view = execution.as<dsc>();
  const auto block = kUnit * (std::uint64_t{view.get(dsc::nsize)} + 1);
  const auto size = block * (std::uint64_t{view.get(dsc::num)} + 1);
  if (execution.done == 0) {
    if (const auto ok = check_coherency(view.get(dsc::coh_src)); !ok) return refuse(ok.error());
    if (const auto ok = check_coherency(view.get(dsc::coh_dst)); !ok) return refuse(ok.error());
    if (const auto ok = check_max_buffer(work, size); !ok) return refuse(ok.error());
  }
  const auto from =
      work.keys.memory(work.context, static_cast<std::uint16_t>(view.get(dsc::akey0)), 0);
  if (!from) return refuse(from.error());
  const auto to = destination(work, view, *from);
  if (!to) return refuse(to.error());
  const auto addr0 = spec::address(view, dsc::addr0);
  const auto addr1 = spec::address(view, dsc::addr1);
  // az only permits leaving the source unread (SDXI 6.2.4); it is read anyway.
  while (execution.done < size) {
    if (work.budget <= 0) return Progress::kMore;
    const auto offset = execution.done % block;
    const Buffer source{*from, addr0 + offset, 0};
    const Buffer target{*to, addr1 + execution.done, 1};
    if (wraps(addr0, offset)) return inaccessible(source, "address overflow");
    if (wraps(addr1, execution.done)) return inaccessible(target, "address overflow");
    const auto copied = copy_piece(work, source, target, block - offset, size);
    if (!copied) return refuse(copied.error());
    execution.done += *copied;
    work.budget -= static_cast<std::int64_t>(*copied) + remote_cost();
  }
  return Progress::kDone;
}

}  // namespace softhca::sdxi
