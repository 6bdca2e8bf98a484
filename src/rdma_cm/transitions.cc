#include "rdma_cm/transitions.h"

#include <algorithm>
#include <iterator>

namespace softhca::rdma_cm {
namespace {

using enum State;
using enum Action;

constexpr Transition kTransitions[] = {
    // The active side.
    {kReqSent, Heard::kMraOfReq, kReqSent, kWaitLonger},
    {kReqSent, Heard::kRep, kRepReceived, kReportResponse},
    {kReqSent, Heard::kRej, kOver, kReportRejected},
    {kReqSent, Heard::kNothing, kOver, kReportUnreachable},
    {kRepReceived, Heard::kRep, kRepReceived, kSendMra},
    {kRepReceived, Heard::kRej, kOver, kReportRejected},
    // The passive side.
    {kReqReceived, Heard::kReq, kReqReceived, kSendMra},
    {kReqReceived, Heard::kRej, kOver, kReportRejected},
    {kRepSent, Heard::kMraOfRep, kRepSent, kWaitLonger},
    {kRepSent, Heard::kRtu, kEstablished, kReportEstablished},
    {kRepSent, Heard::kRej, kOver, kReportRejected},
    {kRepSent, Heard::kDreq, kDreqReceived, kReportDisconnected},
    {kRepSent, Heard::kNothing, kOver, kReportUnreachable},
    // Both sides.
    {kEstablished, Heard::kRep, kEstablished, kSendRtu},
    {kEstablished, Heard::kRej, kOver, kReportRejected},
    {kEstablished, Heard::kDreq, kDreqReceived, kReportDisconnected},
    {kDreqSent, Heard::kDreq, kDreqReceived, kReportDisconnected},
    {kDreqSent, Heard::kDrep, kTimeWait, kReportDisconnected},
    {kDreqSent, Heard::kRej, kOver, kReportRejected},
    {kDreqSent, Heard::kNothing, kTimeWait, kReportLost},
    {kDreqReceived, Heard::kDrep, kTimeWait, kNone},
    {kTimeWait, Heard::kDreq, kTimeWait, kSendDrep},
    {kTimeWait, Heard::kReq, kTimeWait, kRejectStale},
};

}  // namespace

const Transition* find_transition(State from, Heard heard) {
  const auto* const at = std::ranges::find_if(
      kTransitions, [&](const Transition& one) { return one.from == from && one.heard == heard; });
  return at == std::end(kTransitions) ? nullptr : at;
}

}  // namespace softhca::rdma_cm
