#include "rdma/responder_fault.h"

namespace softhca::rdma {

FaultAnswer ResponderFault::open(const PageFault& fault, Waiter waiter) {
  const auto answer = queues_.open_fault(fault);
  if (answer == FaultAnswer::kOpened) waiter_ = waiter;
  return answer;
}

Verdict ResponderFault::hold(const PageFault& fault, const Verdict& otherwise) {
  if (otherwise.reason != Reason::kPageAbsent) return otherwise;
  const auto waiter = fault.kind == PageFaultKind::kReceive ? Waiter::kReceive : Waiter::kAccess;
  if (!is_open() && open(fault, waiter) == FaultAnswer::kNobody) return otherwise;
  return {Verdict::Kind::kNotReady, Reason::kPageAbsent};
}

Verdict ResponderFault::hold_receive(ReceiveQueue& receives, Reason fault, std::uint64_t committed,
                                     std::size_t length) {
  const auto verdict = hold({.kind = PageFaultKind::kReceive,
                             .cookie = receives.request().cookie,
                             .srqn = receives.request_srqn(),
                             .committed = static_cast<std::uint32_t>(committed),
                             .packet_length = static_cast<std::uint32_t>(length)},
                            {Verdict::Kind::kOperation, fault, true});
  if (verdict.completed) receives.fail(WorkStatus::kLocalProtection, fault);
  return verdict;
}

void ResponderFault::close() {
  if (!is_open()) return;
  waiter_ = Waiter::kNone;
  queues_.close_fault();
}

}  // namespace softhca::rdma
