// Writes the CQEs of QPs and DCTs.
//
// A CQE may carry data in place of the buffers of its request (mlx5 driver interface 7.2, cs_req
// and cs_res; PRM Table 68, cqe_format). Software copies them to the buffers when it polls.
#pragma once

#include <cstdint>
#include <span>

#include "connectx/base/numbers.h"
#include "connectx/event/completion_queue.h"
#include "connectx/qp/cqe.h"
#include "rdma/block_signature.h"
#include "rdma/queue_pair.h"
#include "rdma/work_request.h"
#include "spec/connectx/dct.h"
#include "spec/connectx/qp.h"
#include "util/field.h"

namespace softhca::connectx {

/// Every function that writes returns false if the CQ does not exist or has failed. The queue must
/// then fail, too.
class CompletionWriter {
 public:
  explicit CompletionWriter(CompletionQueues& completion_queues)
      : completion_queues_(completion_queues) {}

  /// Sets the timestamp of the next CQEs, in device ticks.
  void set_time(std::uint64_t ticks) { ticks_ = ticks; }

  /// `event`: the CQE also fires a CQ that is armed for solicited events only.
  [[gnu::always_inline]] bool write_send(Cqn cqn, const CqeQueue& queue,
                                         const rdma::SendCompletion& completion, bool event) {
    Cqe cqe;
    encode_requester_cqe(cqe, queue, completion, ticks_);
    return write(cqn, cqe, event);
  }
  [[gnu::always_inline]] bool write_receive(Cqn cqn, const CqeQueue& queue,
                                            const rdma::ReceiveCompletion& completion) {
    Cqe cqe;
    encode_responder_cqe(cqe, queue, completion, ticks_);
    const bool failed = completion.status != rdma::WorkStatus::kSuccess;
    return write(cqn, cqe, failed || completion.solicited);
  }
  // The same with data in the CQE. `room`: the QP's or the DCT's value of rdma::CompletionData.
  bool write_send_with(Cqn cqn, const CqeQueue& queue, const rdma::SendCompletion& completion,
                       std::span<const std::byte> data, std::uint32_t room);
  bool write_receive_with(Cqn cqn, const CqeQueue& queue, const rdma::ReceiveCompletion& completion,
                          std::span<const std::byte> data, std::uint32_t room);
  /// Writes the CQE of a signature error. It precedes the CQE of the work request that moved the
  /// data, and consumes no work request (mlx5 driver interface 8.6).
  bool write_signature_error(Cqn cqn, Qpn qpn, const rdma::SignatureError& error);

  /// Bytes of data that the CQEs of a QP or a DCT carry.
  rdma::CompletionData data_of(util::View<spec::connectx::qpc> context);
  rdma::CompletionData data_of(util::View<spec::connectx::dctc> context);

 private:
  [[gnu::always_inline]] bool write(Cqn cqn, Cqe& cqe, bool event) {
    auto* cq = completion_queues_.find(cqn);
    return cq != nullptr && cq->write(cqe, event);
  }
  bool write_with(Cqn cqn, Cqe& cqe, std::span<const std::byte> data, std::uint32_t room,
                  bool event);
  std::uint32_t data_in_cqes(Cqn cqn, bool asks_32, bool asks_64);

  CompletionQueues& completion_queues_;
  std::uint64_t ticks_ = 0;
};

}  // namespace softhca::connectx
