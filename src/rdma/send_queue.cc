#include "rdma/send_queue.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "rdma/engine.h"
#include "rdma/scatter_gather.h"

namespace softhca::rdma {

namespace {

/// Operations with a payload for the peer.
constexpr spec::infiniband::SendOpcodes kMessages{
    SendOpcode::kSend,      SendOpcode::kSendWithImmediate,      SendOpcode::kSendWithInvalidate,
    SendOpcode::kRdmaWrite, SendOpcode::kRdmaWriteWithImmediate,
};

/// True if the QP may post this request.
[[gnu::always_inline]] inline bool validate(const QueuePair& qp, SendEntry& e,
                                            std::uint64_t length) {
  const auto refuse_as = [&](WorkStatus status, Reason reason) {
    e.status = status;
    e.reason = reason;
    return false;
  };
  const auto& attributes = qp.attributes();
  const auto& service = qp.service();
  if (!service.may_post.has(e.request.opcode)) {
    return refuse_as(WorkStatus::kLocalQpOperation, Reason::kOperationOfOtherService);
  }
  if (length > attributes.message_max || (service.datagram && length > attributes.path_mtu)) {
    return refuse_as(WorkStatus::kLocalLength, Reason::kMessageTooLong);
  }
  if (e.wants_data()) {
    if (!e.request.inline_data.empty()) {
      return refuse_as(WorkStatus::kLocalQpOperation, Reason::kInlineRead);
    }
    if (attributes.max_rd_atomic == 0) {
      return refuse_as(WorkStatus::kLocalQpOperation, Reason::kNoReadsAllowed);
    }
    if (e.is_atomic() && length != (e.is_masked() ? e.request.masked.size : 8)) {
      return refuse_as(WorkStatus::kLocalLength, Reason::kAtomicSize);
    }
  }
  return true;
}

/// Fills in what follows from the request and the attributes, or refuses it.
[[gnu::always_inline]] inline void prepare(const QueuePair& qp, SendEntry& e) {
  const auto& request = e.request;
  if (request.stale) return e.refuse(WorkStatus::kFlushed, Reason::kFlushed);
  if (request.opcode == SendOpcode::kNop || request.opcode == SendOpcode::kLocal) return;

  const auto length = request.is_inline ? request.inline_data.size() : total_length(request.sges);
  const auto mtu = qp.attributes().path_mtu;
  const auto& service = qp.service();
  if (length <= mtu && length <= qp.attributes().message_max &&
      service.may_post.has(request.opcode) && kMessages.has(request.opcode)) {
    // The common case.
    e.length = static_cast<std::uint32_t>(length);
    e.psns = e.packets = 1;
    e.only_packet = (service.fixed_peer || service.datagram) && !request.fence;
    return;
  }
  if (!validate(qp, e, length)) return;
  e.length = static_cast<std::uint32_t>(length);
  e.psns = length <= mtu ? 1 : static_cast<std::uint32_t>((length + mtu - 1) / mtu);
  if (e.is_atomic()) e.psns = 1;
  e.packets = e.wants_data() ? 1 : e.psns;
}

}  // namespace

void SendQueue::reset() {
  window_.reset();
  failed_ = flushed_from_ = kNoRequest;
  drain_reported = false;
}

void SendQueue::stop() { flushed_from_ = std::min(flushed_from_, window_.unanswered()); }

void SendQueue::restart() {
  window_.withdraw();
  for (auto i = window_.head(); i != window_.tail(); ++i) {
    auto& e = window_.entry(i);
    e.executed = i < flushed_from_;
    if (!e.executed && i != failed_) e.refuse(WorkStatus::kFlushed, Reason::kFlushed);
  }
  flushed_from_ = kNoRequest;
}

// Fetching -------------------------------------------------------------------------------------

bool SendQueue::fetch_posted() {
  if (!window_.reserve()) return false;
  auto& e = window_.blank();
  switch (qp_.requests().fetch_send(e.request)) {
    case Fetch::kNothing:
      all_fetched_ = true;
      return false;
    case Fetch::kUnreadable:
      engine_.event(qp_, QpEvent::kCatastrophic, Reason::kSendQueueUnreachable);
      engine_.to_error(qp_);
      return false;
    case Fetch::kMalformed:
      e.refuse(WorkStatus::kLocalQpOperation,
               e.request.fault != Reason::kNone ? e.request.fault : Reason::kMalformedRequest);
      break;
    case Fetch::kFailed:
      e.refuse(qp_.requests().failed_status(), Reason::kFaultRule);
      break;
    case Fetch::kLastRequest:
      all_fetched_ = true;
      [[fallthrough]];
    case Fetch::kRequest:
      prepare(qp_, e);
      break;
  }
  window_.append(e);
  return true;
}

void SendQueue::keep(const ShortDatagram& datagram, const UdDestination& to) {
  (void)window_.reserve();
  auto& e = window_.blank();
  e.request.cookie = datagram.cookie;
  e.request.opcode = datagram.opcode;
  e.request.signaled = datagram.signaled;
  e.request.solicited = datagram.solicited;
  e.request.immediate = datagram.immediate;
  e.request.sges.push_back({datagram.address, datagram.length, datagram.lkey});
  e.request.ud = to;
  prepare(qp_, e);
  window_.append(e);
}

// Executing -------------------------------------------------------------------------------------

bool SendQueue::execute_local(SendEntry& e) {
  if (!e.executed && e.request.opcode == SendOpcode::kLocal) {
    const bool again = std::exchange(e.in_hand, true);
    const auto [status, reason, unfinished] = qp_.queues().execute_local(e.request, again);
    if (unfinished) {
      engine_.mark_ready(qp_);
      return false;
    }
    if (status != WorkStatus::kSuccess) {
      e.refuse(status, reason);
      return true;
    }
  }
  e.executed = true;
  // It may revoke memory that earlier frames refer to, including frames of other QPs.
  e.last_frame = engine_.last_frame;
  window_.pass(e);
  complete_done();
  return true;
}

// Completing -------------------------------------------------------------------------------------

/// Counts and logs a request that did not end in success.
void SendQueue::count_failed(WorkStatus status, Reason reason) {
  if (status == WorkStatus::kFlushed) {
    ++qp_.counters().req_cqe_flush_error;
  } else {
    ++qp_.counters().req_cqe_error;
    engine_.note(qp_, to_string(status), reason);
  }
}

/// Completes a successful READ together with its data.
void SendQueue::complete_with_data(SendEntry& e) {
  qp_.queues().complete_send_with({.cookie = e.request.cookie,
                                   .opcode = e.request.opcode,
                                   .status = WorkStatus::kSuccess,
                                   .signaled = true,
                                   .byte_count = e.length,
                                   .reason = Reason::kNone},
                                  e.completion_data());
}

/// IBTA 10.8.5: a completion returns the buffers. UC and UD sends, flushed requests and
/// retransmissions may still be referenced by undelivered frames.
[[gnu::always_inline]] inline bool SendQueue::is_released(const SendEntry& e) {
  if (engine_.released(e.last_frame)) return true;
  engine_.wait_for_release(qp_, e.last_frame);
  return false;
}

bool SendQueue::waits_for_release() const {
  return !window_.empty() && !engine_.released(window_.oldest().last_frame);
}

void SendQueue::complete_done_fast() {
  while (!window_.empty()) {
    const auto& e = window_.oldest();
    if (e.status != WorkStatus::kSuccess || !is_released(e)) return complete_done();
    window_.pop();
    if (e.request.signaled) complete(e, WorkStatus::kSuccess, Reason::kNone);
  }
}

/// Completes the oldest request, which has ended and is released.
[[gnu::always_inline]] inline void SendQueue::complete_head() {
  auto& e = window_.oldest();
  window_.retire(e);
  if (e.status == WorkStatus::kSuccess && e.is_read() && !e.completion_data().empty()) {
    return complete_with_data(e);
  }
  if (e.request.signaled || e.status != WorkStatus::kSuccess) complete(e, e.status, e.reason);
}

void SendQueue::complete_done() {
  if (!state_rules(qp_.state()).finishes) return;
  const auto reads_before = window_.reads_in_flight();
  while (!window_.empty()) {
    const auto& e = window_.oldest();
    if (is_held_back(window_.head())) break;
    const bool ended =
        window_.done(e) || e.status == WorkStatus::kFlushed || window_.head() == failed_;
    // All requests before it are complete, so its own error may end the QP.
    if (!ended && e.status != WorkStatus::kSuccess) return fail(window_.head(), e.status, e.reason);
    if (!ended || !is_released(e)) break;
    complete_head();
  }
  window_.skip_done();
  // A fenced request, or one more READ or atomic, may have waited for them.
  if (window_.reads_in_flight() < reads_before && !window_.all_sent()) engine_.mark_ready(qp_);
  if (qp_.state() == QpState::kSqDrain && window_.idle() && !drain_reported)
    engine_.mark_ready(qp_);
}

void SendQueue::fail(std::uint64_t index, WorkStatus status, Reason reason) {
  assert(index >= window_.head() && index < window_.tail());
  auto& e = window_.entry(index);
  if (e.status == WorkStatus::kSuccess) e.refuse(status, reason);
  failed_ = index;
  if (qp_.service().keeps_receiving) {
    engine_.set_state(qp_, QpState::kSqError);
  } else {
    engine_.to_error(qp_);
  }
}

unsigned SendQueue::flush(unsigned quota) {
  unsigned used = 0;
  for (; used < quota; ++used) {
    if (window_.empty()) {
      if (!qp_.options().has_send_queue) return used;
      (void)window_.reserve();
      auto& e = window_.blank();
      const auto fetched = qp_.requests().fetch_send(e.request);
      if (fetched == Fetch::kNothing || fetched == Fetch::kUnreadable) {
        window_.settle();
        return used;
      }
      window_.push();
    }
    auto& e = window_.oldest();
    if (!is_released(e)) return used;
    if (window_.head() >= flushed_from_ && window_.head() != failed_) {
      e.refuse(WorkStatus::kFlushed, Reason::kFlushed);
    }
    complete_head();
  }
  return used;
}

}  // namespace softhca::rdma
