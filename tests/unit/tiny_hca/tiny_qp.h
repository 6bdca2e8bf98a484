// A queue pair of the tiny HCA: two chains of WQEs, and the CQ that takes their completions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "hca/published_ring.h"
#include "hca/use.h"
#include "hca/work_ring.h"
#include "rdma/queue_pair.h"
#include "rdma/work_queues.h"
#include "tiny_hca/formats.h"

namespace softhca::tiny {

using Cqn = util::Strong<struct CqnTag, std::uint32_t>;
using rdma::Qpn;

struct CompletionQueue {
  CompletionQueue(Cqn cqn, hca::PublishedRing the_ring) : number(cqn), ring(std::move(the_ring)) {}
  /// False if the CQ is full or its memory cannot be written.
  bool write(util::Struct<cqe>& entry);

  Cqn number;
  hca::PublishedRing ring;
  hca::Users users;
};

class QueuePair final : public rdma::WorkQueues {
 public:
  struct Parts {
    hca::QueueMemory sends;
    hca::QueueMemory receives;
    hca::DoorbellRecord record;
    unsigned log_count;  ///< log2 of the WQEs of each queue
    CompletionQueue& cq;
    std::vector<Qpn>& failing;  ///< takes the QP if its CQ cannot take a completion
  };

  QueuePair(Qpn number, Parts parts);

  Qpn number() const { return number_; }
  void bind(rdma::QueuePair& qp) { rdma_qp_ = &qp; }
  rdma::QueuePair& rdma_qp() { return *rdma_qp_; }

 private:
  rdma::Fetch fetch_send(rdma::SendRequest& request) override;
  void restart_send() override {}  // only needed by services with an SQE state
  rdma::Fetch fetch_receive(rdma::ReceiveRequest& request, rdma::XrcSrqn) override;
  void complete_send(const rdma::SendCompletion& completion) override;
  void complete_receive(const rdma::ReceiveCompletion& completion) override;
  void handle_event(rdma::QpEvent, rdma::Reason) override {}  // the document defines no events

  rdma::Fetch fetch(hca::WorkChain& chain, hca::QueueMemory& memory, util::Struct<wqe>& entry,
                    std::uint32_t& place);
  void complete(util::Struct<cqe>& entry, rdma::WorkStatus status, rdma::Reason reason,
                std::uint32_t place);

  Qpn number_;
  Parts parts_;
  hca::Use cq_use_;
  hca::WorkChain sends_;
  hca::WorkChain receives_;
  rdma::QueuePair* rdma_qp_ = nullptr;
};

}  // namespace softhca::tiny
