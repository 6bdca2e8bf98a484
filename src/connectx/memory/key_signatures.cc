// Signature keys: the checks of CREATE_MKEY, and the signatures that UMRs set.

#include <algorithm>

#include "connectx/memory/memory_keys.h"
#include "connectx/memory/mkey_attributes.h"
#include "connectx/memory/signature_format.h"

namespace softhca::connectx {

namespace {

using MkeyLayout = spec::connectx::mkey_context;
using AccessMode = spec::connectx::mkey_access_mode;

constexpr std::string_view kBsf = "mlx5 driver interface 8.6";

}  // namespace

/// Checks the signature fields of CREATE_MKEY. The format of signed blocks is not known yet: the
/// UMR that takes the key into use sets it.
CommandResult MemoryKeys::check_signable(Context context) const {
  const bool enabled = context.get(MkeyLayout::bsf_en) != 0;
  const auto octwords = context.get(MkeyLayout::bsf_octword_size);
  if (!enabled && octwords == 0) return {};
  if (!enabled || octwords * kOctword != Umr::Bsf::kSize) {
    return refuse(Status::BAD_PARAM, kBsf,
                  "bsf_en and bsf_octword_size are not 0 and 0, or 1 and 4");
  }
  if (access_mode(context) != AccessMode::KLM || context.get(MkeyLayout::umr_en) == 0 ||
      context.get(MkeyLayout::free) == 0) {
    return refuse(Status::BAD_PARAM, kBsf,
                  "bsf_en of a key that is not a free KLM key with umr_en");
  }
  // The PSVs of the key are looked up in its PD.
  if (!resources_.pds().contains(Pd(context.get(MkeyLayout::pd)))) {
    return refuse(Status::BAD_RESOURCE, kBsf, "unknown PD of a signature key");
  }
  return {};
}

/// If the UMR has a BSF, checks it and decodes it to `rules`. `context`: the key's context after
/// the UMR.
WqeFault MemoryKeys::check_signature(const Umr& umr, Context context, rdma::MemoryKey& key,
                                     rdma::SignatureRules& rules) const {
  if (umr.bsf_octwords() == 0) {
    const bool signs = key.signature() != nullptr && context.get(MkeyLayout::bsf_en) != 0;
    // If signatures are enabled, either this UMR or an earlier one must have a BSF.
    return signs && !key.signature()->known() ? WqeFault::kUmrBsfMissing : WqeFault::kNone;
  }
  if (!decode_signature(umr.bsf(), rules)) return WqeFault::kUmrBsf;
  const rdma::Pd pd(context.get(MkeyLayout::pd));
  for (const auto* format : {&rules.memory, &rules.wire}) {
    if (!format->exists()) continue;
    const auto* value = psvs_.find_value(format->value);
    if (value == nullptr || value->pd != pd) return WqeFault::kPsvUnknown;
  }
  return WqeFault::kNone;
}

void MemoryKeys::sign(const Umr& umr, Context context, const rdma::SignatureRules& rules,
                      Record& record, rdma::BlockSignature& signature) {
  if (umr.bsf_octwords() != 0) {
    signature.set(rules);
    std::ranges::copy(umr.bsf().bytes(), record.bsf.begin());
  }
  signature.enable(context.get(MkeyLayout::bsf_en) != 0);
  // A driver counts the signature errors reported to it, and writes the lowest bit of its count.
  const auto count = MkeyLayout::expected_sigerr_count;
  if (util::View<MkeyLayout>(record.context).get(count) != context.get(count)) signature.arm();
}

}  // namespace softhca::connectx
