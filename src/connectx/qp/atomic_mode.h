// The atomics that a QP or DCT accepts, by the atomic_mode of its context (mlx5 driver interface
// 5.6).
#pragma once

#include <cstdint>

#include "spec/connectx/opcodes.h"

namespace softhca::connectx {

/// The value of rdma::AccessFlags::masked_atomic_sizes. InfiniBand has no masked atomics.
constexpr std::uint8_t masked_atomic_sizes_of(std::uint32_t mode) {
  using enum spec::connectx::qp_atomic_mode;
  switch (static_cast<spec::connectx::qp_atomic_mode>(mode)) {
    case NOT_SUPPORTED:
    case IB_SPEC:
      return 0;
    case ONLY_8B:
      return 8;
    default:
      return 4 | 8;
  }
}

}  // namespace softhca::connectx
