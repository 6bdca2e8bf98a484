#include "rdma/requester.h"

#include <algorithm>
#include <cassert>

#include "rdma/engine.h"
#include "rdma/scatter_gather.h"

namespace softhca::rdma {

using spec::infiniband::kMaxMessageBytes;

void Requester::reset() {
  stop_timers();
  head_ = cursor_ = tail_ = begun_ = 0;
  cursor_packet_ = 0;
  next_psn_ = unacked_ = sent_end_ = 0;
  next_packet_ = 0;
  rewound_at_ = UINT64_MAX;
  reads_in_flight_ = 0;
  rnr_wait_ = false;
  drain_reported = false;
}

void Requester::start(std::uint32_t psn) {
  next_psn_ = unacked_ = sent_end_ = psn & wire::Psn::kMask;
  refresh_retries();
}

void Requester::refresh_retries() {
  retries_left_ = qp_.attributes().retry_count;
  rnr_retries_left_ = qp_.attributes().rnr_retry;
}

void Requester::stop_timers() {
  engine_.timers.remove(qp_);
  rnr_wait_ = false;
}

std::uint32_t Requester::next_psn() const {
  return static_cast<std::uint32_t>(next_psn_) & wire::Psn::kMask;
}

std::uint32_t Requester::last_acked_psn() const {
  return static_cast<std::uint32_t>(unacked_ - 1) & wire::Psn::kMask;
}

KeyUser Requester::user() const {
  return {qp_.attributes().pd, qp_.qpn(), qp_.attributes().reserved_lkey};
}

// Fetching -------------------------------------------------------------------------------------

void Requester::grow() {
  // Entries move to their place in the larger ring; their vectors move along.
  std::vector<Entry> larger(std::max<std::size_t>(8, ring_.size() * 2));
  for (auto i = head_; i != tail_; ++i) larger[i & (larger.size() - 1)] = std::move(entry(i));
  ring_ = std::move(larger);
}

bool Requester::fetch() {
  if (!qp_.options().has_send_queue) return false;
  if (tail_ - head_ == ring_.size()) {
    if (ring_.size() == kEntriesMax) return false;
    grow();
  }
  auto& e = entry(tail_);
  e.request.reset();
  switch (engine_.hca.fetch_send(qp_, e.request)) {
    case Fetch::kNothing:
      return false;
    case Fetch::kUnreadable:
      engine_.event(qp_, QpEvent::kCatastrophic, Reason::kSendQueueUnreachable);
      engine_.to_error(qp_);
      return false;
    case Fetch::kMalformed:
      e.status = WorkStatus::kLocalQpOperation;
      e.reason = e.request.fault != Reason::kNone ? e.request.fault : Reason::kMalformedRequest;
      e.length = e.packets = e.psns = 0;
      e.executed = false;
      break;
    case Fetch::kRequest:
      prepare(e);
      break;
  }
  e.first_psn = next_psn_;
  e.first_packet = next_packet_;
  next_psn_ += e.psns;
  next_packet_ += e.packets;
  ++tail_;
  return true;
}

void Requester::prepare(Entry& e) {
  const auto& request = e.request;
  e.executed = false;
  e.status = WorkStatus::kSuccess;
  e.reason = Reason::kNone;
  e.length = e.packets = e.psns = 0;
  if (request.opcode == SendOpcode::kNop || request.opcode == SendOpcode::kLocal) return;

  const auto length = request.is_inline ? request.inline_data.size() : total_length(request.sges);
  if (!validate(e, length)) return;
  const auto mtu = qp_.attributes().path_mtu;
  e.length = static_cast<std::uint32_t>(length);
  e.psns = std::max(1u, static_cast<std::uint32_t>((length + mtu - 1) / mtu));
  if (e.is_atomic()) e.psns = 1;
  e.packets = e.wants_data() ? 1 : e.psns;
}

bool Requester::validate(Entry& e, std::uint64_t length) {
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
  if (service.datagram ? length > attributes.path_mtu : length > kMaxMessageBytes) {
    return refuse_as(WorkStatus::kLocalLength, Reason::kMessageTooLong);
  }
  if (e.wants_data()) {
    if (e.request.is_inline) {
      return refuse_as(WorkStatus::kLocalQpOperation, Reason::kInlineRead);
    }
    if (attributes.max_rd_atomic == 0) {
      return refuse_as(WorkStatus::kLocalQpOperation, Reason::kNoReadsAllowed);
    }
    if (e.is_atomic() && length != 8) {
      return refuse_as(WorkStatus::kLocalLength, Reason::kAtomicSize);
    }
  }
  return true;
}

// Completing -------------------------------------------------------------------------------------

void Requester::complete(Entry& e, WorkStatus status, Reason reason) {
  if (status == WorkStatus::kFlushed) {
    ++qp_.counters_->req_cqe_flush_error;
  } else if (status != WorkStatus::kSuccess) {
    ++qp_.counters_->req_cqe_error;
    engine_.note(qp_, to_string(status), reason);
  }
  engine_.hca.complete_send(qp_, {.cookie = e.request.cookie,
                                  .opcode = e.request.opcode,
                                  .status = status,
                                  .signaled = e.request.signaled,
                                  .byte_count = e.length,
                                  .reason = reason});
}

void Requester::complete_done() {
  while (head_ != tail_) {
    auto& e = entry(head_);
    if (e.status != WorkStatus::kSuccess) {
      // What it waited for is complete.
      if (cursor_ == head_) fail_head(e.status, e.reason);
      break;
    }
    const bool done = e.psns == 0 ? e.executed : unacked_ >= e.end_psn();
    if (!done) break;
    if (e.wants_data() && head_ < cursor_) --reads_in_flight_;
    ++head_;
    complete(e, WorkStatus::kSuccess, Reason::kNone);
  }
  // A late answer may complete what was about to be sent again.
  if (cursor_ < head_) {
    cursor_ = head_;
    cursor_packet_ = 0;
  }
  if (cursor_ == head_ && head_ != tail_ && !entry(head_).wants_data()) {
    cursor_packet_ = std::max(cursor_packet_, static_cast<std::uint32_t>(progress(entry(head_))));
  }
  if (qp_.state() == QpState::kSqDrain && idle() && !drain_reported) engine_.mark_ready(qp_);
}

void Requester::fail_head(WorkStatus status, Reason reason) {
  assert(head_ != tail_);
  auto& e = entry(head_);
  // Out of the queue first: what follows flushes the rest.
  ++head_;
  begun_ = std::max(begun_, head_);
  cursor_ = std::max(cursor_, head_);
  complete(e, status, reason);
  if (qp_.service().keeps_receiving) {
    engine_.set_state(qp_, QpState::kSqError);
  } else {
    engine_.to_error(qp_);
  }
}

unsigned Requester::flush(unsigned quota) {
  unsigned used = 0;
  for (; used < quota; ++used) {
    if (head_ == tail_) {
      if (!qp_.options().has_send_queue) return used;
      if (ring_.empty()) grow();
      auto& e = entry(tail_);
      e.request.reset();
      const auto fetched = engine_.hca.fetch_send(qp_, e.request);
      if (fetched == Fetch::kNothing || fetched == Fetch::kUnreadable) {
        cursor_ = begun_ = head_;
        cursor_packet_ = 0;
        reads_in_flight_ = 0;
        unacked_ = sent_end_ = next_psn_;
        return used;
      }
      e.length = 0;
      ++tail_;
    }
    auto& e = entry(head_++);
    complete(e, WorkStatus::kFlushed, Reason::kFlushed);
  }
  return used;
}

}  // namespace softhca::rdma
