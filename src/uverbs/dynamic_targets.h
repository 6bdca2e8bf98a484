// DCTs, which programs create as QPs of the driver's type. The device has a DCT, and the DCT a
// number, only from RTR on (mlx5 driver interface 7.10).
#pragma once

#include <rdma/mlx5-abi.h>

#include "uverbs/objects.h"
#include "uverbs/qp_attributes.h"

namespace softhca::uverbs {

/// Notes what the program asks for in CREATE_QP.
Errno describe_target(QueuePair& target, const mlx5_ib_create_qp& in);
/// The part of MODIFY_QP that is a DCT's own.
Errno change_target(QueuePair& target, const QpAttributes& wanted);
/// Drains and destroys a DCT, if the device has it.
void destroy_target(QueuePair& target);

}  // namespace softhca::uverbs
