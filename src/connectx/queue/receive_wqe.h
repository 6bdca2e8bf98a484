// Receive WQEs (PRM 7.4.4.3, mlx5 driver interface 8.5): a scatter list.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "connectx/base/limits.h"
#include "rdma/work_request.h"

namespace softhca::connectx {

/// Bytes of a WQE, of QPs, SRQs and RQs alike.
inline constexpr std::size_t kReceiveWqeMax = Limits{}.max_wqe_sz_rq;
static_assert(kReceiveWqeMax == Limits::count(Limits{}.log_max_stride_sz_rq));

/// The scatter list of a WQE, to its end or its end marker. `wqe` is a copy in the device's own
/// memory.
void decode_scatter_list(std::span<const std::byte> wqe, std::vector<rdma::Sge>& sges);

}  // namespace softhca::connectx
