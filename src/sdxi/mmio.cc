#include "sdxi/mmio.h"

#include <algorithm>

#include "util/bits.h"
#include "util/endian.h"
#include "util/log.h"

namespace softhca::sdxi {
namespace {

using spec::mmio_register;

/// A mask of the bits that the fields cover.
template <class... Fields>
constexpr std::uint64_t bits(Fields... fields) {
  const auto one = [](auto field) {
    return std::uint64_t{util::in_place(field, field.kMax)} << field.kOffset * 8;
  };
  return (one(fields) | ...);
}

constexpr std::uint64_t kCtl0Writable =
    bits(spec::mmio_ctl0::fn_gsr, spec::mmio_ctl0::fn_pasid_vl, spec::mmio_ctl0::fn_err_intr_en,
         spec::mmio_ctl0::fn_pasid, spec::mmio_ctl0::fn_grp_id);
constexpr std::uint64_t kGroupId = bits(spec::mmio_ctl0::fn_grp_id);
constexpr std::uint64_t kGsr = bits(spec::mmio_ctl0::fn_gsr);

std::uint64_t word(const auto& bytes) { return util::load_le64(bytes.bytes().data()); }

/// Applies software's write of the bytes `written` to the writable bits.
template <class Layout>
void merge(const util::MutableView<Layout>& reg, std::uint64_t value, std::uint64_t written,
           std::uint64_t writable) {
  const auto mask = written & writable;
  util::store_le64(reg.bytes().data(), (word(reg) & ~mask) | (value & mask));
}

}  // namespace

std::uint64_t Mmio::value_of(mmio_register name) const {
  const auto& r = parts_.registers;
  switch (name) {
    case mmio_register::MMIO_CTL0: {
      // SDXI 3.3.1: in a VF, fn_grp_id has the value of the PF.
      if (parts_.pf == nullptr) return word(r.ctl0);
      util::Struct<spec::mmio_ctl0> ctl0;
      util::store_le64(ctl0.bytes().data(), word(r.ctl0));
      ctl0.set(spec::mmio_ctl0::fn_grp_id, parts_.pf->group_id());
      return word(ctl0);
    }
    case mmio_register::MMIO_GRP_ENUM: {
      if (parts_.pf == nullptr) return word(r.grp_enum);
      util::Struct<spec::mmio_grp_enum> copy;
      copy.set(spec::mmio_grp_enum::probe, parts_.pf->probe());
      copy.set(spec::mmio_grp_enum::busy, parts_.pf->probe_busy());
      return word(copy);
    }
    case mmio_register::MMIO_CTL2:
      return word(r.ctl2);
    case mmio_register::MMIO_STS0:
      return word(r.sts0);
    case mmio_register::MMIO_CAP0:
      return word(r.cap0);
    case mmio_register::MMIO_CAP1:
      return word(r.cap1);
    case mmio_register::MMIO_VERSION:
      return word(r.version);
    case mmio_register::MMIO_CXT_L2:
      return word(r.cxt_l2);
    case mmio_register::MMIO_RKEY:
      return word(r.rkey);
    case mmio_register::MMIO_ERR_CTL:
      return word(r.err_ctl);
    case mmio_register::MMIO_ERR_STS:
      return word(r.err_sts);
    case mmio_register::MMIO_ERR_CFG:
      return word(r.err_cfg);
    case mmio_register::MMIO_ERR_WRT:
      return word(r.err_wrt);
    case mmio_register::MMIO_ERR_RD:
      return word(r.err_rd);
    case mmio_register::MMIO_MB_CTL:
      return parts_.mailboxes.control();
    default:
      return 0;
  }
}

std::uint64_t Mmio::read_register(std::uint64_t offset) {
  if (offset > static_cast<std::uint64_t>(mmio_register::MMIO_MB_CTL)) {
    return parts_.mailboxes.read(offset);
  }
  return value_of(static_cast<mmio_register>(offset));
}

void Mmio::write_ctl0(std::uint64_t value, std::uint64_t written) {
  const pcie::Paused paused(&parts_.gate);
  auto& r = parts_.registers;
  merge<spec::mmio_ctl0>(r.ctl0, value, written,
                         parts_.pf == nullptr ? kCtl0Writable : kCtl0Writable & ~kGroupId);
  if ((written & kGsr) == 0) return;
  parts_.state.request(static_cast<spec::fn_gsr>(r.ctl0.get(spec::mmio_ctl0::fn_gsr)));
}

void Mmio::write_register(std::uint64_t offset, std::uint64_t value, std::uint64_t written) {
  auto& r = parts_.registers;
  switch (static_cast<mmio_register>(offset)) {
    case mmio_register::MMIO_CTL0:
      return write_ctl0(value, written);
    case mmio_register::MMIO_GRP_ENUM:
      if (parts_.pf != nullptr) return;  // SDXI 3.3.1: read-only in a VF
      merge<spec::mmio_grp_enum>(r.grp_enum, value, written,
                                 bits(spec::mmio_grp_enum::busy, spec::mmio_grp_enum::probe));
      probe_is_waiting_ = true;
      return;
    case mmio_register::MMIO_CTL2: {
      const pcie::Paused paused(&parts_.gate);
      return merge<spec::mmio_ctl2>(r.ctl2, value, written,
                                    bits(spec::mmio_ctl2::max_buffer, spec::mmio_ctl2::max_akey_sz,
                                         spec::mmio_ctl2::max_cxt, spec::mmio_ctl2::opb_000_avl));
    }
    case mmio_register::MMIO_CXT_L2:
      // SDXI 9: the register changes only while the function is stopped.
      if (r.gsv() != spec::fn_gsv::GSV_STOP) return;
      return merge<spec::mmio_cxt_l2>(r.cxt_l2, value, written, bits(spec::mmio_cxt_l2::lv02_ptr));
    case mmio_register::MMIO_RKEY: {
      const pcie::Paused paused(&parts_.gate);
      return merge<spec::mmio_rkey>(
          r.rkey, value, written,
          bits(spec::mmio_rkey::en, spec::mmio_rkey::sz, spec::mmio_rkey::ptr));
    }
    case mmio_register::MMIO_ERR_CTL:
      return merge<spec::mmio_err_ctl>(r.err_ctl, value, written, bits(spec::mmio_err_ctl::en));
    case mmio_register::MMIO_ERR_STS: {
      using sts = spec::mmio_err_sts;
      const auto cleared = value & written & bits(sts::sts, sts::ovf, sts::err);
      return merge<sts>(r.err_sts, 0, cleared, cleared);
    }
    case mmio_register::MMIO_ERR_CFG:
      return merge<spec::mmio_err_cfg>(
          r.err_cfg, value, written,
          bits(spec::mmio_err_cfg::en, spec::mmio_err_cfg::sz, spec::mmio_err_cfg::ptr));
    case mmio_register::MMIO_ERR_WRT:
      // SDXI 9.3: software writes it only while logging is off.
      if (r.err_cfg.get(spec::mmio_err_cfg::en) != 0 &&
          r.err_sts.get(spec::mmio_err_sts::err) == 0) {
        return;
      }
      return merge<spec::mmio_err_wrt>(r.err_wrt, value, written, bits(spec::mmio_err_wrt::index));
    case mmio_register::MMIO_ERR_RD:
      return merge<spec::mmio_err_rd>(r.err_rd, value, written, bits(spec::mmio_err_rd::index));
    default:
      break;
  }
  if (offset >= static_cast<std::uint64_t>(mmio_register::MMIO_MB_CTL)) {
    parts_.mailboxes.write(offset, value, written);
  }
}

void Mmio::read(std::uint64_t offset, std::span<std::byte> out) {
  while (!out.empty()) {
    std::byte bytes[8];
    const auto skip = offset % 8;
    const auto length = std::min<std::size_t>(out.size(), 8 - skip);
    util::store_le64(bytes, read_register(offset - skip));
    std::copy_n(bytes + skip, length, out.begin());
    out = out.subspan(length);
    offset += length;
  }
}

void Mmio::write(std::uint64_t offset, std::span<const std::byte> in) {
  while (!in.empty()) {
    std::byte bytes[8]{};
    std::byte mask[8]{};
    const auto skip = offset % 8;
    const auto length = std::min<std::size_t>(in.size(), 8 - skip);
    std::copy_n(in.begin(), length, bytes + skip);
    std::fill_n(mask + skip, length, std::byte{0xff});
    write_register(offset - skip, util::load_le64(bytes), util::load_le64(mask));
    in = in.subspan(length);
    offset += length;
  }
}

void Mmio::probe_has_propagated() {
  probe_is_waiting_ = false;
  parts_.registers.grp_enum.set(spec::mmio_grp_enum::busy, 0);
}

}  // namespace softhca::sdxi
