// Shared receive queues in Rdma: RMPs, SRQs, and the SRQs that XRC requests name.
#include <utility>

#include "connectx/qp/rdma.h"

namespace softhca::connectx {

using rdma::Fetch;
using rdma::WorkStatus;
using spec::connectx::event_type;

SharedReceiveQueue* Rdma::add_srq(SharedReceiveQueue::Attributes attributes) {
  const bool rmp = attributes.kind == SharedReceiveQueue::Kind::kRmp;
  const auto& limits = parts_.limits;
  auto& count = rmp ? rmps_ : srqs_;
  if (count == Limits::count(rmp ? limits.log_max_rmp : limits.log_max_srq)) return nullptr;
  auto* srq = shared_queues_.emplace(std::move(attributes));
  if (srq == nullptr) return nullptr;
  ++count;
  if (srq->attributes().serves_xrc) {
    const auto& added = srq->attributes();
    transport_.add_xrc_srq(rdma::XrcSrqn(srq->number().value()),
                           {.domain = rdma::XrcDomain(added.xrcd.value()), .pd = added.pd});
  }
  return srq;
}

void Rdma::remove_srq(SharedReceiveQueue& srq) {
  if (srq.attributes().serves_xrc) {
    transport_.remove_xrc_srq(rdma::XrcSrqn(srq.number().value()));
  }
  --(srq.attributes().kind == SharedReceiveQueue::Kind::kRmp ? rmps_ : srqs_);
  shared_queues_.erase(srq.number());
}

void Rdma::arm_srq(SharedReceiveQueue& srq, std::uint16_t limit) {
  srq.arm(limit);
  post_srq_events(srq);
}

Fetch Rdma::fetch_shared(Srqn srqn, rdma::ReceiveRequest& request) {
  auto* srq = find_srq(srqn);
  if (srq == nullptr) return Fetch::kUnreadable;
  const auto result = srq->fetch(request);
  request.pd = srq->attributes().pd;
  post_srq_events(*srq);
  return result;
}

void Rdma::post_srq_events(SharedReceiveQueue& srq) {
  const auto data = [&] { return EventQueues::queue_data(srq.number()); };
  if (srq.take_limit_event()) parts_.event_queues.post(event_type::SRQ_LIMIT, 0, data());
  if (const auto reason = srq.take_failure(); !reason.empty()) {
    parts_.notes.warn("SRQ {:#x} failed: {}", srq.number().value(), reason);
    parts_.event_queues.post(event_type::LOCAL_SRQ_CATASTROPHIC_ERROR, 0, data());
  }
}

/// Completes a receive of XRC, whose CQ and user index are the SRQ's.
void Rdma::complete_xrc_receive(QueuePair& qp, const rdma::ReceiveCompletion& completion) {
  const auto* srq = find_srq(Srqn(completion.srqn.value()));
  if (srq == nullptr) return;
  Cqe cqe;
  encode_responder_cqe(cqe, {.qpn = qp.qpn(), .user_index = srq->cqe_user_index()}, completion,
                       ticks_);
  const bool failed = completion.status != WorkStatus::kSuccess;
  write_cqe(qp, srq->attributes().cqn, cqe, failed || completion.solicited);
}

}  // namespace softhca::connectx
