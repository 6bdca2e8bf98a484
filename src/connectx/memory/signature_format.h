// The BSF of a signature key (mlx5 driver interface: UMR): how blocks are protected in memory and
// on the wire, in the terms of rdma/.
#pragma once

#include <cstddef>

#include "rdma/block_signature.h"
#include "spec/connectx/mkey.h"
#include "util/field.h"

namespace softhca::connectx {

/// False: it asks for what is not offered, or contradicts itself.
bool decode_signature(util::View<spec::connectx::block_signature_format> bsf,
                      rdma::SignatureRules& rules);

}  // namespace softhca::connectx
