#include "cm/transitions.h"

#include <algorithm>
#include <iterator>

namespace softhca::cm {
namespace {

using enum State;
using enum Action;

constexpr Transition kTransitions[] = {
    // The active side.
    {kReqSent, Input::kMraOfReq, kReqSent, kWaitLonger},
    {kReqSent, Input::kRep, kRepRcvd, kReportResponse},
    {kReqSent, Input::kRej, kOver, kReportRejected},
    {kReqSent, Input::kTimeout, kOver, kReportUnreachable},
    {kRepRcvd, Input::kRep, kRepRcvd, kSendMra},
    {kRepRcvd, Input::kRej, kOver, kReportRejected},
    {kRepRcvd, Input::kAccept, kEstablished, kSendRtu},
    // The passive side.
    {kReqRcvd, Input::kReq, kReqRcvd, kSendMra},
    {kReqRcvd, Input::kRej, kOver, kReportRejected},
    {kRepSent, Input::kMraOfRep, kRepSent, kWaitLonger},
    {kRepSent, Input::kRtu, kEstablished, kReportEstablished},
    {kRepSent, Input::kRej, kOver, kReportRejected},
    {kRepSent, Input::kDreq, kDreqRcvd, kReportDisconnected},
    {kRepSent, Input::kTimeout, kOver, kReportUnreachable},
    // Both sides.
    {kEstablished, Input::kRep, kEstablished, kSendRtu},
    {kEstablished, Input::kRej, kOver, kReportRejected},
    {kEstablished, Input::kDreq, kDreqRcvd, kReportDisconnected},
    {kEstablished, Input::kDisconnect, kDreqSent, kSendDreq},
    {kDreqSent, Input::kDreq, kDreqRcvd, kReportDisconnected},
    {kDreqSent, Input::kDrep, kTimeWait, kReportDisconnected},
    {kDreqSent, Input::kRej, kOver, kReportRejected},
    {kDreqSent, Input::kTimeout, kTimeWait, kReportLost},
    {kDreqRcvd, Input::kDrep, kTimeWait, kNone},
    {kDreqRcvd, Input::kDisconnect, kTimeWait, kSendDrep},
    {kTimeWait, Input::kDreq, kTimeWait, kSendDrep},
    {kTimeWait, Input::kReq, kTimeWait, kRejectStale},
};

}  // namespace

const Transition* find_transition(State from, Input input) {
  const auto* const at = std::ranges::find_if(
      kTransitions, [&](const Transition& one) { return one.from == from && one.input == input; });
  return at == std::end(kTransitions) ? nullptr : at;
}

}  // namespace softhca::cm
