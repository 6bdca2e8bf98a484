// CQEs of QPs (mlx5 driver interface 8.7): from a completion of the transport to 64 bytes. The
// owner bit is the CQ's own business. An error CQE's vendor_error_syndrome is the number of its
// reason: a WqeFault, or one of rdma/reasons.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "connectx/base/numbers.h"
#include "connectx/qp/send_wqe.h"
#include "rdma/work_request.h"

namespace softhca::connectx {

using Cqe = std::array<std::byte, 64>;

/// User index of a queue whose CQEs have version 0: drivers then look for its number.
inline constexpr std::uint32_t kNoUserIndex = 0xFFFFFF;

/// What a CQE tells of the queue that it comes from.
struct CqeQueue {
  Qpn qpn;                       ///< as CREATE_QP gave it, also for QP1
  std::uint32_t user_index = 0;  ///< field srqn_user_index: user index, SRQN or 0
  bool is_datagram = false;
  bool is_gsi = false;
};

/// A CQE of a send queue, or an error CQE if the completion is one. The cookie is a SendCookie.
void encode_requester_cqe(Cqe& cqe, const CqeQueue& queue, const rdma::SendCompletion& completion,
                          std::uint64_t timestamp);
/// The same for receives. The cookie is the WQE's counter, or its index in an SRQ.
void encode_responder_cqe(Cqe& cqe, const CqeQueue& queue,
                          const rdma::ReceiveCompletion& completion, std::uint64_t timestamp);

}  // namespace softhca::connectx
