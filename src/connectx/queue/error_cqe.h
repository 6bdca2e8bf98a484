// Error CQEs of QPs, SQs and RQs (PRM Table 74, mlx5 driver interface 8.7). The owner bit is the
// CQ's own business.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "connectx/queue/vendor_error.h"
#include "rdma/reasons.h"
#include "spec/connectx/opcodes.h"

namespace softhca::connectx {

struct ErrorCqe {
  ErrorQueue queue;
  spec::connectx::cqe_syndrome syndrome;
  rdma::Reason reason;
  std::uint32_t user_index;
  std::uint32_t number;  ///< of the queue
  std::uint16_t wqe_counter;
  std::uint8_t wqe_opcode = 0;  ///< of a send
};

/// Driver and program see the vendor_error_syndrome of the hardware. Our own reason is in
/// hw_error_syndrome, of which no driver decides anything.
void encode_error_cqe(std::span<std::byte, 64> cqe, const ErrorCqe& error);

}  // namespace softhca::connectx
