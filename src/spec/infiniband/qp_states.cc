#include "spec/infiniband/qp_states.h"

#include <algorithm>
#include <iterator>

namespace softhca::spec::infiniband {
namespace {

using enum QpState;
using enum QpAttribute;

constexpr QpTypes kRc{QpType::kRc};
constexpr QpTypes kUc{QpType::kUc};
constexpr QpTypes kUd{QpType::kUd};
constexpr QpTypes kIni{QpType::kXrcInitiator};
constexpr QpTypes kTgt{QpType::kXrcTarget};
constexpr QpTypes kDci{QpType::kDcInitiator};
/// Types that acknowledge requests.
constexpr QpTypes kResponders{QpType::kRc, QpType::kXrcTarget};
constexpr QpTypes kConnected{QpType::kRc, QpType::kUc, QpType::kXrcInitiator, QpType::kXrcTarget};
constexpr QpTypes kUcOrInitiator{QpType::kUc, QpType::kXrcInitiator};

// Attributes that can change on a running QP.
constexpr QpAttributeSet kRunningUd{kCurrentState, kQkey};
constexpr QpAttributeSet kRunningConnected{kCurrentState, kAccessFlags, kAlternatePath,
                                           kPathMigrationState};
constexpr QpAttributeSet kRunningResponder = kRunningConnected | QpAttributeSet{kMinRnrTimer};
// Attributes that can change while the send queue is drained.
constexpr QpAttributeSet kDrained{kAddressVector, kAlternatePath, kAccessFlags, kPkeyIndex,
                                  kPathMigrationState};
constexpr QpAttributeSet kDrainedReliable = kDrained | QpAttributeSet{kPort, kTimeout};
constexpr QpAttributeSet kDrainedRequester{kRetryCount, kRnrRetry, kMaxRdAtomic};
constexpr QpAttributeSet kDrainedResponder{kMaxDestRdAtomic, kMinRnrTimer};

constexpr QpAttributeSet kConnect{kAddressVector, kPathMtu, kDestinationQpn, kRqPsn};
constexpr QpAttributeSet kConnectOptional{kAlternatePath, kAccessFlags, kPkeyIndex};
constexpr QpAttributeSet kSendReliable{kTimeout, kRetryCount, kRnrRetry, kSqPsn, kMaxRdAtomic};

constexpr QpTransition kTransitions[] = {
    // RESET leads to INIT only: there is no RESET to ERR.
    {kReset, kReset, kAllQpTypes},
    {kReset, kInit, kUd, {kPkeyIndex, kPort, kQkey}, {}},
    {kReset, kInit, kConnected, {kPkeyIndex, kPort, kAccessFlags}, {}},
    {kReset, kInit, kDci, {kPkeyIndex, kPort}, {}},

    {kInit, kReset, kAllQpTypes},
    {kInit, kInit, kUd, {}, {kPkeyIndex, kPort, kQkey}},
    {kInit, kInit, kConnected, {}, {kPkeyIndex, kPort, kAccessFlags}},
    {kInit, kInit, kDci, {}, {kPkeyIndex, kPort}},
    {kInit, kRtr, kUd, {}, {kPkeyIndex, kQkey}},
    {kInit, kRtr, kUcOrInitiator, kConnect, kConnectOptional},
    {kInit, kRtr, kResponders, kConnect | QpAttributeSet{kMaxDestRdAtomic, kMinRnrTimer},
     kConnectOptional},
    {kInit, kRtr, kDci, {kPathMtu}, {kPkeyIndex}},
    {kInit, kError, kAllQpTypes},

    {kRtr, kReset, kAllQpTypes},
    {kRtr, kRts, kUd, {kSqPsn}, kRunningUd},
    {kRtr, kRts, kUc, {kSqPsn}, kRunningConnected},
    {kRtr, kRts, kRc, kSendReliable, kRunningResponder},
    {kRtr, kRts, kIni, kSendReliable, kRunningConnected},
    {kRtr, kRts, kDci, kSendReliable, {kCurrentState}},
    {kRtr, kRts, kTgt, {kTimeout, kSqPsn}, kRunningResponder},
    {kRtr, kError, kAllQpTypes},

    {kRts, kReset, kAllQpTypes},
    {kRts, kRts, kUd, {}, kRunningUd},
    {kRts, kRts, kUcOrInitiator, {}, kRunningConnected},
    {kRts, kRts, kResponders, {}, kRunningResponder},
    {kRts, kRts, kDci, {}, {kCurrentState}},
    {kRts, kSqDrain, kAllQpTypes, {}, {kSqDrainNotify}},
    {kRts, kError, kAllQpTypes},

    {kSqError, kReset, kAllQpTypes},
    {kSqError, kRts, kUd, {}, kRunningUd},
    {kSqError, kRts, kUc, {}, {kCurrentState, kAccessFlags}},
    {kSqError, kError, kAllQpTypes},

    {kSqDrain, kReset, kAllQpTypes},
    {kSqDrain, kRts, kUd, {}, kRunningUd},
    {kSqDrain, kRts, kUcOrInitiator, {}, kRunningConnected},
    {kSqDrain, kRts, kResponders, {}, kRunningResponder},
    {kSqDrain, kRts, kDci, {}, {kCurrentState}},
    {kSqDrain, kSqDrain, kUd, {}, {kPkeyIndex, kQkey}},
    {kSqDrain, kSqDrain, kUc, {}, kDrained},
    {kSqDrain, kSqDrain, kRc, {}, kDrainedReliable | kDrainedRequester | kDrainedResponder},
    {kSqDrain, kSqDrain, kIni, {}, kDrainedReliable | kDrainedRequester},
    {kSqDrain, kSqDrain, kTgt, {}, kDrainedReliable | kDrainedResponder},
    {kSqDrain, kSqDrain, kDci, {}, QpAttributeSet{kPkeyIndex, kPort, kTimeout} | kDrainedRequester},
    {kSqDrain, kError, kAllQpTypes},

    {kError, kReset, kAllQpTypes},
    {kError, kError, kAllQpTypes},
};

}  // namespace

std::span<const QpTransition> qp_transition_table() { return kTransitions; }

const QpTransition* find_transition(QpType type, QpState from, QpState to) {
  const auto* found = std::find_if(
      std::begin(kTransitions), std::end(kTransitions),
      [&](const QpTransition& t) { return t.from == from && t.to == to && t.types.has(type); });
  return found != std::end(kTransitions) ? found : nullptr;
}

}  // namespace softhca::spec::infiniband
