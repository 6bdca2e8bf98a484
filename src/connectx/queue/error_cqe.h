// Error CQEs of QPs, SQs and RQs (PRM Table 74, mlx5 driver interface 8.7). The CQ sets the owner
// bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "connectx/queue/vendor_error.h"
#include "rdma/reasons.h"
#include "rdma/types.h"
#include "spec/connectx/opcodes.h"

namespace softhca::connectx {

struct ErrorCqe {
  ErrorQueue queue;
  spec::connectx::cqe_syndrome syndrome;
  rdma::Reason reason;
  std::uint32_t user_index;
  std::uint32_t number;  ///< number of the queue
  std::uint16_t wqe_counter;
  std::uint8_t wqe_opcode = 0;  ///< of a send WQE
};

/// Maps the status of IBTA 11.6.2 to the syndrome of error CQEs.
spec::connectx::cqe_syndrome syndrome_for(rdma::WorkStatus status);

/// vendor_error_syndrome has the hardware's value, for drivers and programs. hw_error_syndrome,
/// which no driver evaluates, has the reason number.
void encode_error_cqe(std::span<std::byte, 64> cqe, const ErrorCqe& error);

}  // namespace softhca::connectx
