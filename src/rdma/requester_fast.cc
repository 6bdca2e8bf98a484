// Fast paths for responses that acknowledge everything sent. They make the checks that nearly all
// responses pass; any other response goes to handle_answer().

#include <cstring>

#include "rdma/requester.h"
#include "rdma/retransmission_inl.h"

namespace softhca::rdma {

bool Requester::handle_acknowledgement_fast(const wire::TransportHeaders& headers) {
  const auto& [bth, ext] = headers;
  if (ext.aeth.type != wire::AethType::ACK || window().all_acknowledged() ||
      ((bth.psn.value() + 1) ^ window().sent_end()) & wire::Psn::kMask ||
      qp_.state() != QpState::kRts || !window().all_sent() || window().reads_in_flight() != 0 ||
      !pause().over() || qp_.service().packets != wire::Service::RC || !qp_.takes(bth.pkey)) {
    return false;
  }
  window().acknowledge(window().sent_end());
  refresh_retries();
  engine_.timers.stop(qp_, Timer::kAck);
  queue().complete_done_fast();
  if (!queue().all_fetched()) engine_.mark_ready(qp_);  // it may have waited for room
  return true;
}

bool Requester::handle_read_response_fast(const wire::TransportHeaders& headers,
                                          const wire::Frame& frame) {
  const auto& bth = headers.bth;
  if (window().head() == window().cursor() || qp_.state() != QpState::kRts || !pause().over() ||
      (bth.psn.value() ^ window().unacked()) & wire::Psn::kMask || window().all_acknowledged() ||
      qp_.service().packets != wire::Service::RC || !qp_.takes(bth.pkey)) {
    return false;
  }
  auto& e = window().oldest();
  if (!e.is_read() || e.psns != 1 || e.first_psn != window().unacked() ||
      e.length != frame.packet_payload() || e.status != WorkStatus::kSuccess ||
      window().cursor() < window().begun() || e.length <= qp_.options().completion_data.of_reads) {
    return false;
  }
  auto* const to = memory_.find_target(e);
  const auto* const from = frame.one_piece(frame.headers_size(), e.length);
  if (to == nullptr || from == nullptr) return false;
  std::memmove(to, from, e.length);
  window().acknowledge(window().unacked() + 1);
  refresh_retries();
  engine_.timers.stop(qp_, Timer::kAck);
  if (!window().all_acknowledged()) retransmission_.arm_ack_timer();
  window().retire_read();
  if (e.request.signaled) queue().complete(e, WorkStatus::kSuccess, Reason::kNone);
  if (queue().may_complete()) queue().complete_done();
  if (queue().has_more()) engine_.mark_ready(qp_);
  return true;
}

}  // namespace softhca::rdma
