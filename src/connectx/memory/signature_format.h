// Converts the BSF of a signature key (mlx5 driver interface 8.6) to the rules of rdma/: the
// protection of blocks in memory and on the wire.
#pragma once

#include <cstddef>

#include "rdma/block_signature.h"
#include "spec/connectx/mkey.h"
#include "util/field.h"

namespace softhca::connectx {

/// False if the BSF requests something that is not implemented, or contradicts itself.
bool decode_signature(util::View<spec::connectx::block_signature_format> bsf,
                      rdma::SignatureRules& rules);

}  // namespace softhca::connectx
