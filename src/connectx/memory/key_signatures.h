// Checks of signature keys (mlx5 driver interface 8.6).
#pragma once

#include "connectx/base/resources.h"
#include "connectx/command/command.h"
#include "connectx/memory/signature_values.h"
#include "connectx/memory/umr.h"
#include "rdma/memory_key.h"
#include "spec/connectx/mkey.h"
#include "util/field.h"

namespace softhca::connectx {

/// Checks the signature fields of CREATE_MKEY. The format of signed blocks is not known yet: the
/// UMR that takes the key into use sets it.
CommandResult check_signable(util::View<spec::connectx::mkey_context> context,
                             Resources& resources);
/// If the UMR has a BSF, checks it and decodes it to `rules`. `context`: the key's context after
/// the UMR.
WqeFault check_signature(const Umr& umr, util::View<spec::connectx::mkey_context> context,
                         rdma::MemoryKey& key, const PsvTable& psvs, rdma::SignatureRules& rules);

}  // namespace softhca::connectx
