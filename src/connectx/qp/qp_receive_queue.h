// A QP's own receive queue. QPs without one take their WQEs from a SharedReceiveQueue.
#pragma once

#include <span>

#include "connectx/qp/qp_context.h"
#include "connectx/qp/wqe_reader.h"
#include "connectx/queue/mapped_queue.h"
#include "connectx/queue/receive_wqe.h"
#include "hca/work_ring.h"
#include "rdma/work_queues.h"

namespace softhca::connectx {

class QpReceiveQueue {
 public:
  explicit QpReceiveQueue(const hca::WorkRing& ring) : ring_(ring) {}

  hca::WorkRing& ring() { return ring_; }
  const hca::WorkRing& ring() const { return ring_; }

  /// Takes the rules for WQEs from the QP's context.
  void set_rules(Qpn qpn, const QpContext& context);

  // The calls of rdma::WorkQueues --------------------------------------------------------------

  /// `flushes`: the WQE is not executed, and is not read.
  rdma::Fetch fetch(MappedQueue& queue, WqeReader& reader, bool flushes,
                    rdma::ReceiveRequest& request);
  /// Fast path of fetch(): the next WQE, if it is one piece of memory. False, with nothing
  /// consumed, in any other case.
  bool fetch_fast(MappedQueue& queue, rdma::ReceivePiece& piece) {
    if (!is_plain_ || ring_.available(queue.record).value_or(0) == 0) return false;
    const auto* at = ring_.at_next(queue.memory, ring_.stride());
    if (at == nullptr || !decode_scatter_list_fast(at, ring_.stride(), piece.sge)) return false;
    piece.cookie = ring_.consumed();
    ring_.consume(1);
    return true;
  }

 private:
  rdma::Fetch fetch_signed(std::span<const std::byte> wqe, rdma::ReceiveRequest& request);

  hca::WorkRing ring_;
  Qpn qpn_;
  bool is_signed_ = false;  ///< WQEs begin with a signature segment (PRM 7.4.4.3)
  /// True if the QP has its own receive queue, whose WQEs begin with a data segment.
  bool is_plain_ = false;
};

}  // namespace softhca::connectx
