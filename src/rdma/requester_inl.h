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
  const auto fault = memory_.add_all(e, frame);
  if (engine_.moved(qp_, fault, true)) return true;
  hold_or_refuse(e, fault, 0);
  return false;
}

}  // namespace softhca::rdma
