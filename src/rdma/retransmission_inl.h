// Methods of Retransmission on the path of every packet, which need the definition of Engine.
#pragma once

#include "rdma/engine.h"
#include "rdma/retransmission.h"

namespace softhca::rdma {

inline void Retransmission::arm_ack_timer() {
  if (TimerQueue::is_armed(qp_, Timer::kAck) || retries_.timeout() == util::Duration{}) return;
  engine_.timers.arm(qp_, Timer::kAck, engine_.now + retries_.timeout());
}

[[gnu::always_inline]] inline void Retransmission::pass_packets(const SendEntry& e,
                                                                std::uint64_t psn_after,
                                                                unsigned count) {
  const auto again = window().pass_packets(e, psn_after, count);
  if (again != 0) qp_.counters().retransmitted_packets += again;
  if (qp_.service().reliable) {
    arm_ack_timer();
  } else {
    window().acknowledge(psn_after);  // IBTA 9.8.2: there are no acknowledgements
  }
}

[[gnu::always_inline]] inline void Retransmission::pass_only(const SendEntry& e) {
  if (window().pass_only(e)) ++qp_.counters().retransmitted_packets;
  if (qp_.service().reliable) {
    arm_ack_timer();
  } else {
    window().acknowledge(e.end_psn());
  }
}

}  // namespace softhca::rdma
