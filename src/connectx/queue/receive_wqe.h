// Receive WQEs (PRM 7.4.4.3, mlx5 driver interface 8.5): a scatter list.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "rdma/work_request.h"

namespace softhca::connectx {

/// A WQE stride of a QP is at most 2^(7 + 4) bytes.
inline constexpr std::size_t kReceiveWqeMax = 2048;

/// The scatter list of a WQE, to its end or its end marker. `wqe` is a copy in the device's own
/// memory.
void decode_scatter_list(std::span<const std::byte> wqe, std::vector<rdma::Sge>& sges);

}  // namespace softhca::connectx
