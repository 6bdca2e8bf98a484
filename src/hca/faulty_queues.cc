#include "hca/faulty_queues.h"

#include <utility>

namespace softhca::hca {

using rdma::Fetch;
using rdma::QpState;

FaultyQueues::FaultyQueues(const Parts& parts) : parts_(parts) { parts_.qp.set_requests(*this); }

/// False if fetched requests are flushed.
bool FaultyQueues::executes() const {
  return parts_.qp.state() != QpState::kError && parts_.qp.state() != QpState::kSqError;
}

bool FaultyQueues::follow_rules() {
  const bool goes_on = held_ != nullptr && !parts_.faults.holds(held_->rule);
  if (parts_.faults) parts_.qp.set_requests(*this);
  step_aside_if_unused();
  return goes_on;
}

void FaultyQueues::step_aside_if_unused() {
  if (!parts_.faults && held_ == nullptr) parts_.qp.set_requests(parts_.queues);
}

Fetch FaultyQueues::fetch_send(rdma::SendRequest& request) {
  if (held_ != nullptr) {
    if (executes() && parts_.faults.holds(held_->rule)) return Fetch::kNothing;
    request = std::move(held_->request);
    held_.reset();
    step_aside_if_unused();
    return Fetch::kRequest;
  }
  const auto fetched = parts_.queues.fetch_send(request);
  const bool fresh = fetched == Fetch::kRequest || fetched == Fetch::kLastRequest;
  return parts_.faults && fresh && !request.stale && executes() ? inject(request, fetched)
                                                                : fetched;
}

/// Applies the rules to a request that was fetched to be executed.
Fetch FaultyQueues::inject(rdma::SendRequest& request, Fetch fetched) {
  const auto qpn = parts_.qp.qpn().value();
  const auto opcode = parts_.opcode_of(request);
  if (const auto* rule =
          parts_.faults.take({.action = FaultAction::kStallSend, .qp = qpn, .opcode = opcode})) {
    held_ = std::make_unique<Held>(Held{.request = std::move(request), .rule = rule->id});
    request.reset();
    return Fetch::kNothing;
  }
  if (const auto* rule =
          parts_.faults.take({.action = FaultAction::kFailRequest, .qp = qpn, .opcode = opcode})) {
    failed_ = rule->rule.end;
    return Fetch::kFailed;
  }
  return fetched;
}

void FaultyQueues::restart_send() {
  if (held_ != nullptr) held_->request.stale = true;  // it was posted before
  parts_.queues.restart_send();
}

Fetch FaultyQueues::fetch_receive(rdma::ReceiveRequest& request, rdma::XrcSrqn srqn) {
  if (parts_.faults && !parts_.qp.flushes_receives() &&
      parts_.faults.take({.action = FaultAction::kStallReceive, .qp = parts_.qp.qpn().value()}) !=
          nullptr) {
    return Fetch::kNothing;
  }
  return parts_.queues.fetch_receive(request, srqn);
}

}  // namespace softhca::hca
