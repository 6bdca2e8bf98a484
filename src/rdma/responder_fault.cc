#include "rdma/responder_fault.h"

namespace softhca::rdma {

FaultAnswer ResponderFault::open(const PageFault& fault, Waiter waiter) {
  const auto answer = queues_.open_fault(fault);
  if (answer == FaultAnswer::kOpened) waiter_ = waiter;
  return answer;
}

RequestOutcome ResponderFault::hold(const PageFault& fault, const RequestOutcome& otherwise) {
  if (otherwise.reason != Reason::kPageAbsent) return otherwise;
  const auto waiter = fault.kind == PageFaultKind::kReceive ? Waiter::kReceive : Waiter::kAccess;
  if (!is_open() && open(fault, waiter) == FaultAnswer::kNobody) return otherwise;
  return {RequestOutcome::Kind::kNotReady, Reason::kPageAbsent};
}

RequestOutcome ResponderFault::hold_receive(ReceiveQueue& receives, Reason fault,
                                            std::uint64_t committed, std::size_t length) {
  const auto outcome = hold({.kind = PageFaultKind::kReceive,
                             .cookie = receives.request().cookie,
                             .srqn = receives.request_srqn(),
                             .committed = static_cast<std::uint32_t>(committed),
                             .packet_length = static_cast<std::uint32_t>(length)},
                            {RequestOutcome::Kind::kOperation, fault, true});
  if (outcome.completed) receives.fail(WorkStatus::kLocalProtection, fault);
  return outcome;
}

void ResponderFault::close() {
  if (!is_open()) return;
  waiter_ = Waiter::kNone;
  queues_.close_fault();
}

}  // namespace softhca::rdma
