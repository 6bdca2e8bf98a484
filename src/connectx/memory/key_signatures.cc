#include "connectx/memory/key_signatures.h"

#include <string_view>

#include "connectx/memory/mkey_attributes.h"
#include "connectx/memory/signature_format.h"

namespace softhca::connectx {

namespace {

using MkeyLayout = spec::connectx::mkey_context;
using AccessMode = spec::connectx::mkey_access_mode;

constexpr std::string_view kBsf = "mlx5 driver interface 8.6";

}  // namespace

CommandResult check_signable(util::View<MkeyLayout> context, Resources& resources) {
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
  if (!resources.pds().contains(Pd(context.get(MkeyLayout::pd)))) {
    return refuse(Status::BAD_RESOURCE, kBsf, "unknown PD of a signature key");
  }
  return {};
}

WqeFault check_signature(const Umr& umr, util::View<MkeyLayout> context, rdma::MemoryKey& key,
                         const PsvTable& psvs, rdma::SignatureRules& rules) {
  if (umr.bsf_octwords() == 0) {
    const bool signs = key.signature() != nullptr && context.get(MkeyLayout::bsf_en) != 0;
    // If signatures are enabled, either this UMR or an earlier one must have a BSF.
    return signs && !key.signature()->known() ? WqeFault::kUmrBsfMissing : WqeFault::kNone;
  }
  if (!decode_signature(umr.bsf(), rules)) return WqeFault::kUmrBsf;
  const rdma::Pd pd(context.get(MkeyLayout::pd));
  for (const auto* format : {&rules.memory, &rules.wire}) {
    if (!format->exists()) continue;
    const auto* value = psvs.find_value(format->value);
    if (value == nullptr || value->pd != pd) return WqeFault::kPsvUnknown;
  }
  return WqeFault::kNone;
}

}  // namespace softhca::connectx
