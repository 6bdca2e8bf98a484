#include "driver/sdxi/descriptor.h"

#include <algorithm>
#include <cassert>

namespace softhca::driver::sdxi {
namespace {

template <class Subtype>
std::uint8_t code(Subtype subtype) {
  return static_cast<std::uint8_t>(subtype);
}

}  // namespace

Descriptor::Descriptor(spec::dsc_type type, std::uint8_t subtype) {
  const auto header = as<spec::dsc_generic>().sub(spec::dsc_generic::header);
  header.set(spec::dsc_header::type, static_cast<std::uint32_t>(type));
  header.set(spec::dsc_header::subtype, subtype);
  header.set(spec::dsc_header::csr, 1);
  as<spec::dsc_generic>().sub(spec::dsc_generic::footer).set(spec::dsc_footer::np, 1);
}

Descriptor Descriptor::nop() {
  return {spec::dsc_type::DMA_BASE_GRP, code(spec::dma_base_subtype::DSC_DMAB_NOP)};
}

Descriptor Descriptor::write(Buffer to, std::span<const std::byte> data) {
  using dsc = spec::dsc_dmab_wrt_imm;
  assert(!data.empty() && data.size() <= dsc::data.kSize);
  Descriptor d(spec::dsc_type::DMA_BASE_GRP, code(spec::dma_base_subtype::DSC_DMAB_WRT_IMM));
  const auto view = d.as<dsc>();
  view.set(dsc::bsize, static_cast<std::uint32_t>(data.size() - 1));
  view.set(dsc::akey0, to.akey);
  view.set(dsc::addr0, to.at);
  std::copy(data.begin(), data.end(), view.sub(dsc::data).begin());
  return d;
}

Descriptor Descriptor::copy(Buffer to, Buffer from, std::uint64_t size) {
  using dsc = spec::dsc_dmab_copy;
  assert(size >= 1 && size <= std::uint64_t{1} << 32);
  Descriptor d(spec::dsc_type::DMA_BASE_GRP, code(spec::dma_base_subtype::DSC_DMAB_COPY));
  const auto view = d.as<dsc>();
  view.set(dsc::size, static_cast<std::uint32_t>(size - 1));
  view.set(dsc::akey0, from.akey);
  view.set(dsc::akey1, to.akey);
  view.set(dsc::addr0, from.at);
  view.set(dsc::addr1, to.at);
  return d;
}

Descriptor Descriptor::repeat_copy(Buffer to, Buffer from, std::uint32_t units,
                                   std::uint32_t copies) {
  using dsc = spec::dsc_dmab_repcopy;
  Descriptor d(spec::dsc_type::DMA_BASE_GRP, code(spec::dma_base_subtype::DSC_DMAB_REPCOPY));
  const auto view = d.as<dsc>();
  view.set(dsc::nsize, units - 1);
  view.set(dsc::num, copies - 1);
  view.set(dsc::akey0, from.akey);
  view.set(dsc::akey1, to.akey);
  spec::set_address(view, dsc::addr0, from.at);
  spec::set_address(view, dsc::addr1, to.at);
  return d;
}

Descriptor Descriptor::atomic(spec::atomic_subtype operation, Buffer at, unsigned size,
                              std::uint64_t op1, std::uint64_t op2,
                              std::optional<pcie::Iova> old_value) {
  using dsc = spec::dsc_atm;
  assert((size == 4 || size == 8) && at.at % size == 0);
  Descriptor d(spec::dsc_type::ATOMIC_GRP, code(operation));
  const auto view = d.as<dsc>();
  view.set(dsc::osz, size / 4 - 1);
  view.set(dsc::akey0, at.akey);
  spec::set_address(view, dsc::addr0, at.at);
  view.set(dsc::op1, op1);
  view.set(dsc::op2, op2);
  view.set(dsc::nr, old_value ? 0 : 1);
  if (old_value) spec::set_address(view, dsc::ret_data_ptr, *old_value);
  return d;
}

Descriptor Descriptor::interrupt(std::uint16_t akey) {
  Descriptor d(spec::dsc_type::INTR_GRP, code(spec::intr_subtype::DSC_INTR));
  d.as<spec::dsc_intr>().set(spec::dsc_intr::akey, akey);
  return d;
}

Descriptor Descriptor::start(std::uint16_t first, std::uint16_t last,
                             std::optional<std::uint64_t> doorbell) {
  using dsc = spec::dsc_cxt_start;
  Descriptor d(spec::dsc_type::ADMIN_GRP, code(spec::admin_subtype::DSC_CXT_START_NM));
  d.as<dsc>().set(dsc::cxt_start, first);
  d.as<dsc>().set(dsc::cxt_end, last);
  d.as<dsc>().set(dsc::dv, doorbell ? 1 : 0);
  d.as<dsc>().set(dsc::db_value, doorbell.value_or(0));
  return d.fence();
}

Descriptor Descriptor::stop(std::uint16_t first, std::uint16_t last, bool hard) {
  using dsc = spec::dsc_cxt_stop;
  Descriptor d(spec::dsc_type::ADMIN_GRP, code(spec::admin_subtype::DSC_CXT_STOP));
  d.as<dsc>().set(dsc::cxt_start, first);
  d.as<dsc>().set(dsc::cxt_end, last);
  d.as<dsc>().set(dsc::hs, hard);
  return d.fence();
}

Descriptor Descriptor::update_contexts(spec::tgt_pcd level, std::uint16_t first,
                                       std::uint16_t last) {
  using dsc = spec::dsc_cxt_upd;
  Descriptor d(spec::dsc_type::ADMIN_GRP, code(spec::admin_subtype::DSC_CXT_UPD));
  d.as<dsc>().set(dsc::tgt_pcd, static_cast<std::uint32_t>(level));
  d.as<dsc>().set(dsc::cxt_start, first);
  d.as<dsc>().set(dsc::cxt_end, last);
  return d;
}

Descriptor Descriptor::update_akeys(std::uint16_t context, std::uint16_t first,
                                    std::uint16_t last) {
  using dsc = spec::dsc_akey_upd;
  Descriptor d(spec::dsc_type::ADMIN_GRP, code(spec::admin_subtype::DSC_AKEY_UPD));
  d.as<dsc>().set(dsc::cxt_start, context);
  d.as<dsc>().set(dsc::cxt_end, context);
  d.as<dsc>().set(dsc::akey_start, first);
  d.as<dsc>().set(dsc::akey_end, last);
  return d;
}

Descriptor Descriptor::update_rkeys(std::uint16_t first, std::uint16_t last) {
  using dsc = spec::dsc_rkey_upd;
  Descriptor d(spec::dsc_type::ADMIN_GRP, code(spec::admin_subtype::DSC_RKEY_UPD));
  d.as<dsc>().set(dsc::rkey_start, first);
  d.as<dsc>().set(dsc::rkey_end, last);
  return d;
}

Descriptor Descriptor::sync(spec::sync_filter filter, std::uint16_t first, std::uint16_t last,
                            std::uint16_t first_key, std::uint16_t last_key) {
  using dsc = spec::dsc_sync;
  Descriptor d(spec::dsc_type::ADMIN_GRP, code(spec::admin_subtype::DSC_SYNC));
  d.as<dsc>().set(dsc::flt, static_cast<std::uint32_t>(filter));
  d.as<dsc>().set(dsc::cxt_start, first);
  d.as<dsc>().set(dsc::cxt_end, last);
  d.as<dsc>().set(dsc::key_start, first_key);
  d.as<dsc>().set(dsc::key_end, last_key);
  return d;
}

Descriptor& Descriptor::on_vf(std::uint16_t vf_num) {
  // SDXI 6.6: the fields have the same offset in all operations that have them.
  using dsc = spec::dsc_fn_upd;
  as<dsc>().set(dsc::vf, 1);
  as<dsc>().set(dsc::vf_num, vf_num);
  return *this;
}

Descriptor& Descriptor::fence() {
  as<spec::dsc_generic>().sub(spec::dsc_generic::header).set(spec::dsc_header::fe, 1);
  return *this;
}

Descriptor& Descriptor::sequential() {
  as<spec::dsc_generic>().sub(spec::dsc_generic::header).set(spec::dsc_header::se, 1);
  return *this;
}

void Descriptor::set_block(pcie::Iova block, bool simple) {
  as<spec::dsc_generic>().sub(spec::dsc_generic::header).set(spec::dsc_header::csr, simple);
  const auto footer = as<spec::dsc_generic>().sub(spec::dsc_generic::footer);
  footer.set(spec::dsc_footer::np, 0);
  spec::set_address(footer, spec::dsc_footer::csb_ptr, block);
}

Descriptor& Descriptor::complete_at(pcie::Iova block) {
  set_block(block, true);
  return *this;
}

Descriptor& Descriptor::count_down_at(pcie::Iova block) {
  set_block(block, false);
  return *this;
}

}  // namespace softhca::driver::sdxi
