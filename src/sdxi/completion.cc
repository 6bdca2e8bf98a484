#include "sdxi/completion.h"

#include "util/bits.h"

namespace softhca::sdxi {
namespace {

using spec::cst_blk;
using spec::dsc_footer;
using spec::dsc_generic;

void set_error_recorded(const AddressSpace& space, Iova block) {
  (void)space.update<std::uint32_t>(block + cst_blk::er.kOffset, [](std::uint32_t old) {
    return old | util::in_place(cst_blk::er, 1);
  });
}

bool is_simple(util::View<dsc_generic> descriptor) {
  return descriptor.get(dsc_generic::header).get(spec::dsc_header::csr) != 0;
}

}  // namespace

SignalRules Completions::rules() const {
  const auto cap = static_cast<spec::cs_cap>(registers_.cap0.get(spec::mmio_cap0::cs_cap));
  return {.stores_zero = cap != spec::cs_cap::CS_ATOMIC,
          .atomic = memory_.atomic_requests_enabled()};
}

bool Completions::update_signal(const AddressSpace& space, Iova block, bool simple) const {
  const auto how = rules();
  if (auto* place = space.place(block, sizeof(std::uint64_t))) {
    how.apply(*reinterpret_cast<std::uint64_t*>(place), simple);
    return true;
  }
  // Slow path: memory that is unreadable, or behind a peer, where no access is atomic. With a
  // trace, all memory takes it.
  if (auto* trace = memory_.trace()) {
    trace->note(util::TraceStep::kCompletion, simple && how.stores_zero ? "zero" : "decrement",
                {{"address", block}});
  }
  if (simple && how.stores_zero) return space.store64(block, 0);
  return space.update_plainly<std::uint64_t>(block, [](std::uint64_t old) { return old - 1; })
      .has_value();
}

bool Completions::complete(const AddressSpace& space, util::View<dsc_generic> descriptor) const {
  const auto footer = descriptor.get(dsc_generic::footer);
  if (footer.get(dsc_footer::np) != 0) return true;
  return update_signal(space, spec::address(footer, dsc_footer::csb_ptr), is_simple(descriptor));
}

Refusal Completions::signal_error(const AddressSpace& space, util::View<dsc_generic> descriptor) {
  const auto block = spec::address(descriptor.get(dsc_generic::footer), dsc_footer::csb_ptr);
  const auto fault = space.explain(block);
  set_error_recorded(space, block);
  return {.step = spec::err_step::ERRV_DSC_CSB,
          .sub_step = fault.sub_step,
          .err_class = fault.err_class,
          .reason = "CST_BLK.signal cannot be updated",
          .section = "SDXI 5.3",
          .value = block};
}

void Completions::complete_with_error(const AddressSpace& space,
                                      util::View<dsc_generic> descriptor) const {
  const auto footer = descriptor.get(dsc_generic::footer);
  if (footer.get(dsc_footer::np) != 0) return;
  const auto block = spec::address(footer, dsc_footer::csb_ptr);
  set_error_recorded(space, block);
  (void)update_signal(space, block, is_simple(descriptor));
}

}  // namespace softhca::sdxi
