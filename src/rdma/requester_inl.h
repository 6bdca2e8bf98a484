// Methods of Requester on the path of every packet, which need the definition of Engine.
#pragma once

#include "rdma/engine.h"
#include "rdma/requester.h"

namespace softhca::rdma {

inline void Requester::arm_ack_timer() {
  if (qp_.timers_[Timer::kAck] != util::kNever || retries_.timeout() == util::Duration{}) return;
  engine_.timers.arm(qp_, Timer::kAck, engine_.now + retries_.timeout());
}

/// Adds the payload of a single-packet message. False if that failed and the request was refused.
[[gnu::always_inline]] inline bool Requester::add_only_payload(SendEntry& e, wire::Frame& frame) {
  return memory_.add_short(e, frame) || (check_payload(e) && add_payload(e, 0, e.length, frame));
}

}  // namespace softhca::rdma
