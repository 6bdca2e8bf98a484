#include "sdxi/registers.h"

#include <algorithm>

namespace softhca::sdxi {
namespace {

/// MMIO_CAP1.opb_000_cap (SDXI Table 6-1).
std::uint32_t operation_groups(const Capabilities& capabilities) {
  const auto bit = [](spec::op_grp group) { return 1u << static_cast<unsigned>(group); };
  std::uint32_t groups = 0;
  // SDXI 6.3: a function with the full set "shall not report support for the minimal set".
  if (capabilities.atomics == AtomicSet::kFull) groups |= bit(spec::op_grp::FULL_ATOMIC);
  if (capabilities.atomics == AtomicSet::kMinimal) groups |= bit(spec::op_grp::MINIMAL_ATOMIC);
  if (capabilities.interrupt_group) groups |= bit(spec::op_grp::INTERRUPT);
  return groups;
}

template <class... Structs>
void clear(Structs&... structs) {
  (std::fill(structs.bytes().begin(), structs.bytes().end(), std::byte{0}), ...);
}

}  // namespace

Registers::Registers(const Capabilities& capabilities, std::uint16_t sfunc, bool vf) {
  cap0.set(spec::mmio_cap0::sfunc, sfunc);
  cap0.set(spec::mmio_cap0::vf, vf);
  cap0.set(spec::mmio_cap0::cs_cap, static_cast<std::uint32_t>(capabilities.cs_cap));
  cap0.set(spec::mmio_cap0::db_stride, capabilities.db_stride);
  cap0.set(spec::mmio_cap0::max_ds_ring_sz, capabilities.max_ds_ring_sz);
  cap0.set(spec::mmio_cap0::max_rkey_sz, capabilities.max_rkey_sz);
  cap1.set(spec::mmio_cap1::max_buffer, capabilities.max_buffer);
  cap1.set(spec::mmio_cap1::rkey_cap, capabilities.rkey_cap);
  cap1.set(spec::mmio_cap1::mmio64, 1);
  cap1.set(spec::mmio_cap1::max_errlog_sz, capabilities.max_errlog_sz);
  cap1.set(spec::mmio_cap1::max_akey_sz, capabilities.max_akey_sz);
  cap1.set(spec::mmio_cap1::max_cxt, capabilities.max_cxt);
  cap1.set(spec::mmio_cap1::opb_000_cap, operation_groups(capabilities));
  version.set(spec::mmio_version::major, 1);
  reset();
}

void Registers::reset() {
  clear(ctl0, grp_enum, ctl2, sts0, cxt_l2, rkey, err_ctl, err_sts, err_cfg, err_wrt, err_rd);
  ctl2.set(spec::mmio_ctl2::max_buffer, cap1.get(spec::mmio_cap1::max_buffer));
  ctl2.set(spec::mmio_ctl2::max_akey_sz, cap1.get(spec::mmio_cap1::max_akey_sz));
  ctl2.set(spec::mmio_ctl2::max_cxt, cap1.get(spec::mmio_cap1::max_cxt));
}

}  // namespace softhca::sdxi
