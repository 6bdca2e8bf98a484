#include <algorithm>
#include <cassert>
#include <utility>

#include "rdma/engine.h"
#include "rdma/requester_inl.h"
#include "rdma/scatter_gather.h"

namespace softhca::rdma {

namespace {

/// Operations with a payload for the peer.
constexpr spec::infiniband::SendOpcodes kMessages{
    SendOpcode::kSend,      SendOpcode::kSendWithImmediate,      SendOpcode::kSendWithInvalidate,
    SendOpcode::kRdmaWrite, SendOpcode::kRdmaWriteWithImmediate,
};

}  // namespace

Requester::Requester(Engine& engine, QueuePair& qp) : engine_(engine), qp_(qp), window_(engine) {
  const auto& service = qp.service();
  if (service.datagram) datagram_path_ = std::make_unique<DatagramPath>();
  if (service.connected && !service.fixed_peer) dc_ = std::make_unique<DcInitiator>(engine, qp);
}

void Requester::reset() {
  disconnect();
  stop();
  window_.reset();
  retries_.forget_implied();
  failed_ = flushed_from_ = kNoRequest;
  drain_reported = false;
}

void Requester::start(std::uint32_t psn) {
  window_.start(psn & wire::Psn::kMask);
  refresh_retries();
}

void Requester::refresh_retries() { retries_.refresh(qp_.attributes()); }

void Requester::handle_attributes() {
  seen_key_ = read_key_ = {};
  retries_.set_timeout(qp_.attributes(), engine_.ack_timeout_min);
}

void Requester::stop() {
  flushed_from_ = std::min(flushed_from_, window_.unanswered());
  engine_.timers.remove(qp_);
  close_fault();
  pause_.end();
}

void Requester::disconnect() {
  if (dc_ != nullptr && dc_->is_open()) dc_->close(engine_.path_header(qp_), window_);
}

void Requester::restart() {
  window_.withdraw();
  for (auto i = window_.head(); i != window_.tail(); ++i) {
    auto& e = window_.entry(i);
    e.executed = i < flushed_from_;
    if (!e.executed && i != failed_) e.refuse(WorkStatus::kFlushed, Reason::kFlushed);
  }
  flushed_from_ = kNoRequest;
}

KeyUser Requester::user() const {
  return {qp_.attributes().pd, qp_.qpn(), qp_.attributes().reserved_lkey, true};
}

// Fetching -------------------------------------------------------------------------------------

bool Requester::fetch_posted() {
  if (!window_.reserve()) return false;
  auto& e = window_.blank();
  switch (qp_.queues_.fetch_send(e.request)) {
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
    case Fetch::kLastRequest:
      all_fetched_ = true;
      [[fallthrough]];
    case Fetch::kRequest:
      prepare(e);
      break;
  }
  window_.append(e);
  return true;
}

[[gnu::always_inline]] inline void Requester::prepare(SendEntry& e) {
  const auto& request = e.request;
  if (request.stale) return e.refuse(WorkStatus::kFlushed, Reason::kFlushed);
  if (request.opcode == SendOpcode::kNop || request.opcode == SendOpcode::kLocal) return;

  const auto length = request.is_inline ? request.inline_data.size() : total_length(request.sges);
  const auto mtu = qp_.attributes().path_mtu;
  const auto& service = qp_.service();
  if (length <= mtu && length <= qp_.attributes().message_max &&
      service.may_post.has(request.opcode) && kMessages.has(request.opcode)) {
    // The common case.
    e.length = static_cast<std::uint32_t>(length);
    e.psns = e.packets = 1;
    e.only_packet = (service.fixed_peer || service.datagram) && !request.fence;
    return;
  }
  if (!validate(e, length)) return;
  e.length = static_cast<std::uint32_t>(length);
  e.psns = length <= mtu ? 1 : static_cast<std::uint32_t>((length + mtu - 1) / mtu);
  if (e.is_atomic()) e.psns = 1;
  e.packets = e.wants_data() ? 1 : e.psns;
}

/// Appends a request that was filled in at the tail.
[[gnu::noinline]] void Requester::add(SendEntry& e) {
  prepare(e);
  window_.append(e);
}

[[gnu::always_inline]] inline bool Requester::validate(SendEntry& e, std::uint64_t length) {
  const auto refuse_as = [&](WorkStatus status, Reason reason) {
    e.status = status;
    e.reason = reason;
    return false;
  };
  const auto& attributes = qp_.attributes();
  const auto& service = qp_.service();
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

// Completing -------------------------------------------------------------------------------------

/// Counts and logs a request that did not end in success.
void Requester::count_failed(WorkStatus status, Reason reason) {
  if (status == WorkStatus::kFlushed) {
    ++qp_.counters_->req_cqe_flush_error;
  } else {
    ++qp_.counters_->req_cqe_error;
    engine_.note(qp_, to_string(status), reason);
  }
}

/// Completes a successful READ together with its data.
void Requester::complete_with_data(SendEntry& e) {
  qp_.queues_.complete_send_with({.cookie = e.request.cookie,
                                  .opcode = e.request.opcode,
                                  .status = WorkStatus::kSuccess,
                                  .signaled = true,
                                  .byte_count = e.length,
                                  .reason = Reason::kNone},
                                 e.completion_data());
}

/// IBTA 10.8.5: a completion returns the buffers. UC and UD sends, flushed requests and
/// retransmissions may still be referenced by undelivered frames.
[[gnu::always_inline]] inline bool Requester::is_released(const SendEntry& e) {
  if (engine_.released(e.last_frame)) return true;
  engine_.wait_for_release(qp_, e.last_frame);
  return false;
}

bool Requester::waits_for_release() const {
  return !window_.empty() && !engine_.released(window_.oldest().last_frame);
}

/// Fast path of complete_done(): all requests are sent and acknowledged, and none waits for data.
void Requester::complete_sent() {
  while (!window_.empty()) {
    const auto& e = window_.oldest();
    if (e.status != WorkStatus::kSuccess || !is_released(e)) return complete_done();
    window_.pop();
    if (e.request.signaled) complete(e, WorkStatus::kSuccess, Reason::kNone);
  }
}

/// Completes the oldest request, which has ended and is released.
[[gnu::always_inline]] inline void Requester::complete_head() {
  auto& e = window_.oldest();
  window_.retire(e);
  if (e.status == WorkStatus::kSuccess && e.is_read() && !e.completion_data().empty()) {
    return complete_with_data(e);
  }
  if (e.request.signaled || e.status != WorkStatus::kSuccess) complete(e, e.status, e.reason);
}

void Requester::complete_done() {
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

/// Stops sending. flush() then completes the done requests before `index` in success, that request
/// with its first error, and all others as flushed.
void Requester::fail(std::uint64_t index, WorkStatus status, Reason reason) {
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

unsigned Requester::flush(unsigned quota) {
  unsigned used = 0;
  for (; used < quota; ++used) {
    if (window_.empty()) {
      if (!qp_.options().has_send_queue) return used;
      (void)window_.reserve();
      auto& e = window_.blank();
      const auto fetched = qp_.queues_.fetch_send(e.request);
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
