// QUERY_QP (kernel interface 4.8): reads the device's context, as mlx5_ib_query_qp does.
#pragma once

#include <rdma/ib_user_verbs.h>

#include <cstdint>

#include "uverbs/objects.h"

namespace softhca::uverbs {

/// `mask`: the attributes asked for; only a DCT regards it.
Errno query_qp(QueuePair& qp, std::uint32_t mask, ib_uverbs_query_qp_resp& out);

}  // namespace softhca::uverbs
