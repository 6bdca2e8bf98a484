// Those methods of Requester that every packet passes, and for which Engine must be known.
#pragma once

#include "rdma/engine.h"
#include "rdma/requester.h"

namespace softhca::rdma {

inline void Requester::arm_ack_timer() {
  if (qp_.timers_[Timer::kAck] != util::kNever || ack_timeout_ == util::Duration{}) return;
  engine_.timers.arm(qp_, Timer::kAck, engine_.now + ack_timeout_);
}

}  // namespace softhca::rdma
