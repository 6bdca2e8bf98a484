#include "connectx/qp/shared_receive_queues.h"

#include <utility>

namespace softhca::connectx {

using rdma::Fetch;
using spec::connectx::event_type;

namespace {

/// Cost of destroying an SRQ (util::WorkBudget).
constexpr std::int64_t kSrqDestroyWork = 600;

}  // namespace

SharedReceiveQueues::SharedReceiveQueues(const Limits& limits, Resources& resources,
                                         rdma::XrcSrqs& xrc_srqs, EventQueues& event_queues,
                                         util::Notes& notes)
    : limits_(limits),
      xrc_srqs_(xrc_srqs),
      event_queues_(event_queues),
      notes_(notes),
      queues_(resources.srq_numbers(),
              Limits::count(limits.log_max_srq) + Limits::count(limits.log_max_rmp),
              resources.first_srq()) {}

SharedReceiveQueue* SharedReceiveQueues::add(SharedReceiveQueue::Attributes attributes) {
  const bool rmp = attributes.kind == SharedReceiveQueue::Kind::kRmp;
  auto& count = rmp ? rmps_ : srqs_;
  if (count == Limits::count(rmp ? limits_.log_max_rmp : limits_.log_max_srq)) return nullptr;
  auto* srq = queues_.emplace(std::move(attributes));
  if (srq == nullptr) return nullptr;
  ++count;
  if (srq->attributes().serves_xrc) {
    const auto& added = srq->attributes();
    xrc_srqs_.add(rdma::XrcSrqn(srq->number().value()),
                  {.domain = rdma::XrcDomain(added.xrcd.value()), .pd = added.pd});
  }
  return srq;
}

void SharedReceiveQueues::remove(SharedReceiveQueue& srq) {
  if (srq.attributes().serves_xrc) {
    xrc_srqs_.remove(rdma::XrcSrqn(srq.number().value()));
  }
  --(srq.attributes().kind == SharedReceiveQueue::Kind::kRmp ? rmps_ : srqs_);
  queues_.erase(srq.number());
}

bool SharedReceiveQueues::dismantle(util::WorkBudget& work) {
  return queues_.dismantle(work, [](const auto&) { return kSrqDestroyWork; });
}

void SharedReceiveQueues::arm(SharedReceiveQueue& srq, std::uint16_t limit) {
  srq.arm(limit);
  post_events(srq);
}

Fetch SharedReceiveQueues::fetch(Srqn number, rdma::ReceiveRequest& request) {
  auto* srq = find(number);
  if (srq == nullptr) return Fetch::kUnreadable;
  const auto result = srq->fetch(request);
  request.pd = srq->attributes().pd;
  post_events(*srq);
  return result;
}

void SharedReceiveQueues::post_events(SharedReceiveQueue& srq) {
  const auto data = [&] { return EventQueues::queue_data(srq.number()); };
  if (srq.take_limit_event()) event_queues_.post(event_type::SRQ_LIMIT, 0, data());
  if (const auto reason = srq.take_failure(); !reason.empty()) {
    notes_.warn("SRQ {:#x} failed: {}", srq.number().value(), reason);
    event_queues_.post(event_type::LOCAL_SRQ_CATASTROPHIC_ERROR, 0, data());
  }
}

}  // namespace softhca::connectx
