// User-mode memory registration (UMR, PRM 7.4.4.1.3 and 10.1.1): a work request that changes a
// memory key. Fast registration, binding memory windows and invalidating them are UMRs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "connectx/queue/wqe_fault.h"
#include "rdma/types.h"
#include "rdma/work_queues.h"
#include "spec/connectx/mkey.h"
#include "spec/connectx/wqe.h"
#include "util/field.h"

namespace softhca::connectx {

/// A UMR WQE without its control segment, as a copy in the device's own memory.
class Umr {
 public:
  using Control = spec::connectx::wqe_umr_ctrl_segment;
  using Context = spec::connectx::mkey_context;
  using Mask = spec::connectx::umr_mkey_mask;
  using Pointer = spec::connectx::umr_pointer;
  using Bsf = spec::connectx::block_signature_format;

  /// Finds faults that do not depend on the key.
  static WqeFault check(std::span<const std::byte> body);

  /// @pre check() has passed
  explicit Umr(std::span<const std::byte> body) : body_(body) {}

  util::View<Control> control() const { return util::View<Control>(body_); }
  util::View<Mask> mask() const { return control().get(Control::mkey_ctx_bit_mask); }
  /// New values of the fields that the mask names.
  util::View<Context> context() const { return util::View<Context>(body_.subspan(Control::kSize)); }
  /// Octwords of translations that the UMR writes: their number, and the first one.
  std::size_t octwords() const { return control().get(Control::translation_octword_actual_size); }
  std::uint64_t first_octword() const;
  bool is_inline() const { return control().get(Control::inline_) != 0; }
  /// @pre is_inline()
  std::span<const std::byte> translations() const;
  /// Octwords of the BSF, which follows the translations.
  std::size_t bsf_octwords() const {
    const auto c = control();
    return c.get(Control::translation_offset_en) != 0 ? 0 : c.get(Control::bsf_octword_actual_size);
  }
  /// @pre bsf_octwords() != 0
  util::View<Bsf> bsf() const { return util::View<Bsf>(body_.subspan(kHeadersSize + list_size())); }
  /// Location of the translations if they are not inline.
  util::View<Pointer> pointer() const { return util::View<Pointer>(body_.subspan(kHeadersSize)); }

 private:
  static constexpr std::size_t kHeadersSize = Control::kSize + Context::kSize;

  /// Bytes of the list in the WQE.
  std::size_t list_size() const;

  std::span<const std::byte> body_;
};

/// The QP that a UMR was posted to.
struct UmrUser {
  rdma::Pd pd;
  rdma::Qpn qpn;
  bool reserved_lkey = false;
  /// True for QPs of service REG_UMR, which only the kernel can create. They change keys of all
  /// PDs.
  bool any_pd = false;
  /// True for kernel QPs with `fre`, which may use bus addresses.
  bool may_register = false;
  bool again = false;  ///< continues a UMR (rdma::WorkQueues::execute_local)
};

rdma::LocalOutcome refused(WqeFault fault);

}  // namespace softhca::connectx
