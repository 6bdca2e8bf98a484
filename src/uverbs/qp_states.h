// MODIFY_QP (kernel interface 4.8): the checks of Linux's uverbs_cmd.c, verbs.c and mlx5_ib, in
// their order, then the command for the two states. The attributes then live in the device.
#pragma once

#include <cstdint>

#include "uverbs/objects.h"
#include "uverbs/qp_attributes.h"

namespace softhca::uverbs {

/// Changes the attributes of a QP. `rate`: the rate limit of a raw packet QP.
Errno change_qp(QueuePair& qp, QpAttributes in, std::uint32_t rate = 0);

}  // namespace softhca::uverbs
