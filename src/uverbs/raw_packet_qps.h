// Raw packet QPs (kernel interface 4.7), whose states are those of an SQ and an RQ.
#pragma once

#include <rdma/mlx5-abi.h>

#include <cstdint>

#include "uverbs/objects.h"
#include "uverbs/open_file.h"

namespace softhca::uverbs {

/// Creates its queues in the program's memory. `flags`: those of ib_uverbs_qp_create_flags.
Errno make_raw_packet_qp(const OpenFile& file, QueuePair& qp, const mlx5_ib_create_qp& in,
                         std::uint32_t flags);
/// Returns the device's object numbers, which programs with DevX get.
void tell_of_raw_packet_qp(const QueuePair& qp, mlx5_ib_create_qp_resp& out);

}  // namespace softhca::uverbs
