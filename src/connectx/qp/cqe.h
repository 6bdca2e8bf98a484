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
#include "spec/connectx/cqe.h"
#include "spec/connectx/opcodes.h"
#include "util/field.h"

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

/// An error CQE of a send queue. The cookie is a SendCookie.
void encode_requester_error(Cqe& cqe, const CqeQueue& queue,
                            const rdma::SendCompletion& completion);
/// A CQE of a send queue, or an error CQE if the completion is one.
inline void encode_requester_cqe(Cqe& cqe, const CqeQueue& queue,
                                 const rdma::SendCompletion& completion, std::uint64_t timestamp) {
  using Layout = spec::connectx::cqe64_requester;
  if (completion.status != rdma::WorkStatus::kSuccess) {
    return encode_requester_error(cqe, queue, completion);
  }
  const auto cookie = SendCookie::unpack(completion.cookie);
  const bool brings_data = completion.opcode == rdma::SendOpcode::kRdmaRead ||
                           completion.opcode == rdma::SendOpcode::kCompareSwap ||
                           completion.opcode == rdma::SendOpcode::kFetchAdd;
  cqe.fill(std::byte{0});
  const util::MutableView<Layout> out(cqe);
  out.set(Layout::srqn_user_index, queue.user_index);
  if (brings_data) out.set(Layout::byte_cnt, completion.byte_count);
  out.set(Layout::timestamp, timestamp);
  out.set(Layout::s_wqe_opcode, cookie.opcode);
  out.set(Layout::qpn, queue.qpn.value());
  out.set(Layout::wqe_counter, cookie.index);
  out.set(Layout::opcode, static_cast<std::uint32_t>(spec::connectx::cqe_opcode::REQUESTER));
}
/// The same for receives. The cookie is the WQE's counter, or its index in an SRQ.
void encode_responder_cqe(Cqe& cqe, const CqeQueue& queue,
                          const rdma::ReceiveCompletion& completion, std::uint64_t timestamp);

}  // namespace softhca::connectx
