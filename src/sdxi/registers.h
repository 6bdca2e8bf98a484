// The contents of the MMIO registers (SDXI 9), without side effects, which mmio.h has.
#pragma once

#include <cstdint>
#include <optional>

#include "sdxi/format.h"
#include "sdxi/memory.h"
#include "sdxi/options.h"
#include "util/field.h"

namespace softhca::sdxi {

struct Registers {
  Registers(const Capabilities& capabilities, std::uint16_t sfunc, bool vf);

  /// Sets the reset values (SDXI 9.1 to 9.4).
  void reset();

  spec::fn_gsv gsv() const { return static_cast<spec::fn_gsv>(sts0.get(spec::mmio_sts0::fn_gsv)); }
  /// {Gsv_Run} of SDXI 4.2. In other states nothing in memory is valid (SDXI 4.3.1, LVL_FN), and
  /// the function does no DMA.
  bool in_gsv_run() const {
    const auto state = gsv();
    return state == spec::fn_gsv::GSV_ACTIVE || state == spec::fn_gsv::GSV_STOPG_SF ||
           state == spec::fn_gsv::GSV_STOPG_HD;
  }
  /// The PASID of function-level structures (SDXI 3.1).
  std::optional<Pasid> fn_pasid() const {
    if (ctl0.get(spec::mmio_ctl0::fn_pasid_vl) == 0) return std::nullopt;
    return ctl0.get(spec::mmio_ctl0::fn_pasid);
  }
  std::uint32_t max_cxt() const { return ctl2.get(spec::mmio_ctl2::max_cxt); }
  /// SDXI 4.3.2 step 1a.
  bool max_cxt_is_legal() const { return max_cxt() <= cap1.get(spec::mmio_cap1::max_cxt); }

  util::Struct<spec::mmio_ctl0> ctl0;
  util::Struct<spec::mmio_grp_enum> grp_enum;
  util::Struct<spec::mmio_ctl2> ctl2;
  util::Struct<spec::mmio_sts0> sts0;
  util::Struct<spec::mmio_cap0> cap0;
  util::Struct<spec::mmio_cap1> cap1;
  util::Struct<spec::mmio_version> version;
  util::Struct<spec::mmio_cxt_l2> cxt_l2;
  util::Struct<spec::mmio_rkey> rkey;
  util::Struct<spec::mmio_err_ctl> err_ctl;
  util::Struct<spec::mmio_err_sts> err_sts;
  util::Struct<spec::mmio_err_cfg> err_cfg;
  util::Struct<spec::mmio_err_wrt> err_wrt;
  util::Struct<spec::mmio_err_rd> err_rd;
};

}  // namespace softhca::sdxi
