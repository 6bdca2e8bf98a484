#include <algorithm>
#include <cassert>
#include <utility>

#include "rdma/engine.h"
#include "rdma/lent_rings.h"
#include "rdma/requester_inl.h"
#include "rdma/scatter_gather.h"

namespace softhca::rdma {

namespace {

/// Operations with a payload for the peer.
constexpr spec::infiniband::SendOpcodes kMessages{
    SendOpcode::kSend,      SendOpcode::kSendWithImmediate,      SendOpcode::kSendWithInvalidate,
    SendOpcode::kRdmaWrite, SendOpcode::kRdmaWriteWithImmediate,
};

/// Work (util::WorkBudget) of allocating or freeing a ring. A ring of the first size is part of the
/// request's cost.
constexpr std::int64_t ring_work(std::size_t entries) {
  constexpr std::int64_t kEntryWork = 40;
  return entries <= Requester::kEntriesFirst ? 0 : static_cast<std::int64_t>(entries) * kEntryWork;
}

}  // namespace

Requester::Requester(Engine& engine, QueuePair& qp) : engine_(engine), qp_(qp) {
  const auto& service = qp.service();
  if (service.datagram) datagram_path_ = std::make_unique<DatagramPath>();
  if (service.connected && !service.fixed_peer) dc_ = std::make_unique<DcConnection>();
}

Requester::~Requester() { drop_ring(); }

void Requester::reset() {
  disconnect();
  stop();
  drop_ring();
  head_ = answered_ = cursor_ = tail_ = begun_ = 0;
  cursor_packet_ = 0;
  next_psn_ = unacked_ = sent_end_ = 0;
  next_packet_ = 0;
  rewound_at_ = UINT64_MAX;
  reads_in_flight_ = 0;
  failed_ = flushed_from_ = kNoRequest;
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

void Requester::handle_attributes() {
  seen_key_ = read_key_ = {};
  const auto timeout = spec::infiniband::ack_timeout(qp_.attributes().ack_timeout);
  ack_timeout_ =
      timeout ? std::max<util::Duration>(*timeout, engine_.ack_timeout_min) : util::Duration{};
}

void Requester::stop() {
  flushed_from_ = std::min(flushed_from_, unanswered());
  engine_.timers.remove(qp_);
  close_fault();
  waits_ = 0;
}

void Requester::restart() {
  // Reuse the PSNs of requests that were not sent.
  next_psn_ = unacked_ = sent_end_;
  for (auto i = head_; i != tail_; ++i) {
    auto& e = entry(i);
    e.executed = i < flushed_from_;
    e.psns = e.packets = 0;
    e.first_psn = next_psn_;
    e.first_packet = next_packet_;
    if (!e.executed && i != failed_) refuse(e, WorkStatus::kFlushed, Reason::kFlushed);
  }
  cursor_ = begun_ = tail_;
  cursor_packet_ = 0;
  flushed_from_ = kNoRequest;
}

std::uint32_t Requester::next_psn() const {
  return static_cast<std::uint32_t>(next_psn_) & wire::Psn::kMask;
}

std::uint32_t Requester::last_acked_psn() const {
  return static_cast<std::uint32_t>(unacked_ - 1) & wire::Psn::kMask;
}

KeyUser Requester::user() const {
  return {qp_.attributes().pd, qp_.qpn(), qp_.attributes().reserved_lkey, true};
}

// Fetching -------------------------------------------------------------------------------------

/// False if this QP, or all QPs together, have reached their limit of requests in flight. One
/// request is always granted, so that every QP makes progress.
bool Requester::grow() {
  if (lent_ == nullptr) {
    ring_begin_ = tail_;
    return grow_to(ring_wish_) || grow_to(kEntriesFirst) || grow_to(1);
  }
  return lent_->size != kEntriesMax && grow_to(std::max(kEntriesFirst, lent_->size * 2));
}

bool Requester::grow_to(std::size_t size) {
  auto* larger = engine_.lent_rings().requests.take(size);
  if (larger == nullptr) {
    larger = make_ring(size);
    if (larger == nullptr) return false;
  }
  if (lent_ != nullptr) {
    // Move entries to their positions in the larger ring. Swapping keeps the vectors' capacity in
    // both.
    for (auto i = head_; i != tail_; ++i) std::swap(larger->entries[i & (size - 1)], entry(i));
    give_ring();
  }
  if (size != 1 && !larger->share.holds()) reserve_share(*larger);
  lent_ = larger;
  ring_ = larger->entries.get();
  ring_size_ = size;
  ring_mask_ = size - 1;
  engine_.note_rings();
  return true;
}

/// Null if all QPs together have reached their limit of requests.
[[gnu::noinline]] Requester::Ring* Requester::make_ring(std::size_t size) {
  auto& rings = engine_.lent_rings().requests;
  const auto own = lent_ != nullptr && lent_->size != 1 ? lent_->size : 0;
  const auto enough = [&] { return size == 1 || engine_.requests.left() + own >= size; };
  if (!enough()) engine_.keys.add_work(ring_work(rings.clear()));
  if (!enough()) return nullptr;
  engine_.keys.add_work(ring_work(size));
  return rings.make(size);
}

/// Reserves the share of a new ring. The old ring has just gone to the pool, which may hold the
/// missing share.
[[gnu::noinline]] void Requester::reserve_share(Ring& ring) {
  auto share = engine_.requests.reserve(ring.size);
  if (!share) {
    engine_.keys.add_work(ring_work(engine_.lent_rings().requests.clear()));
    share = engine_.requests.reserve(ring.size);
  }
  ring.share = std::move(*share);
}

/// Returns the ring to the pool, and drops its contents.
void Requester::give_ring() {
  const auto size = lent_->size;
  ring_ = nullptr;
  ring_size_ = ring_mask_ = 0;
  if (!engine_.lent_rings().requests.give(std::exchange(lent_, nullptr))) {
    engine_.keys.add_work(ring_work(size));
  }
}

void Requester::give_back() {
  if (head_ == tail_) drop_ring();
}

void Requester::drop_ring() {
  if (lent_ == nullptr) return;
  // Ask for a ring of the size that was needed, so that it need not grow next time.
  const auto size = lent_->size;
  const bool too_large = tail_ - ring_begin_ <= size / 2;
  ring_wish_ = static_cast<std::uint16_t>(std::max(kEntriesFirst, too_large ? size / 2 : size));
  give_ring();
  engine_.note_rings();
}

bool Requester::fetch_posted() {
  if (tail_ - head_ == ring_size_ && !grow()) return false;
  auto& e = entry(tail_);
  e.clear();
  switch (qp_.queues_.fetch_send(e.request)) {
    case Fetch::kNothing:
      all_fetched_ = true;
      return false;
    case Fetch::kUnreadable:
      engine_.event(qp_, QpEvent::kCatastrophic, Reason::kSendQueueUnreachable);
      engine_.to_error(qp_);
      return false;
    case Fetch::kMalformed:
      refuse(e, WorkStatus::kLocalQpOperation,
             e.request.fault != Reason::kNone ? e.request.fault : Reason::kMalformedRequest);
      break;
    case Fetch::kLastRequest:
      all_fetched_ = true;
      [[fallthrough]];
    case Fetch::kRequest:
      prepare(e);
      break;
  }
  number(e);
  return true;
}

[[gnu::always_inline]] inline void Requester::prepare(Entry& e) {
  const auto& request = e.request;
  if (request.stale) return refuse(e, WorkStatus::kFlushed, Reason::kFlushed);
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
[[gnu::noinline]] void Requester::add(Entry& e) {
  prepare(e);
  number(e);
}

[[gnu::always_inline]] inline bool Requester::validate(Entry& e, std::uint64_t length) {
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
void Requester::complete_with_data(Entry& e) {
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
[[gnu::always_inline]] inline bool Requester::is_released(const Entry& e) {
  if (engine_.released(e.last_frame)) return true;
  engine_.wait_for_release(qp_, e.last_frame);
  return false;
}

bool Requester::waits_for_release() const {
  return head_ != tail_ && !engine_.released(entry(head_).last_frame);
}

/// Fast path of complete_done(): all requests are sent and acknowledged, and none waits for data.
void Requester::complete_sent() {
  while (head_ != tail_) {
    const auto& e = entry(head_);
    if (e.status != WorkStatus::kSuccess || !is_released(e)) return complete_done();
    ++head_;
    if (e.request.signaled) complete(e, WorkStatus::kSuccess, Reason::kNone);
  }
}

/// Completes the oldest request, which has ended and is released.
[[gnu::always_inline]] inline void Requester::complete_head() {
  auto& e = entry(head_);
  if (e.wants_data() && head_ < cursor_) --reads_in_flight_;
  ++head_;
  if (e.status == WorkStatus::kSuccess && e.is_read() && !e.completion_data().empty()) {
    return complete_with_data(e);
  }
  if (e.request.signaled || e.status != WorkStatus::kSuccess) complete(e, e.status, e.reason);
}

void Requester::complete_done() {
  if (!state_rules(qp_.state()).finishes) return;
  const auto reads_before = reads_in_flight_;
  while (head_ != tail_) {
    const auto& e = entry(head_);
    if (is_held_back(head_)) break;
    const bool ended = done(e) || e.status == WorkStatus::kFlushed || head_ == failed_;
    // All requests before it are complete, so its own error may end the QP.
    if (!ended && e.status != WorkStatus::kSuccess) return fail(head_, e.status, e.reason);
    if (!ended || !is_released(e)) break;
    complete_head();
  }
  skip_done();
  // A fenced request, or one more READ or atomic, may have waited for them.
  if (reads_in_flight_ < reads_before && cursor_ != tail_) engine_.mark_ready(qp_);
  if (qp_.state() == QpState::kSqDrain && idle() && !drain_reported) engine_.mark_ready(qp_);
}

/// A late acknowledgement may cover requests that were about to be sent again: skips them.
void Requester::skip_done() {
  if (cursor_ < head_) {
    cursor_ = head_;
    cursor_packet_ = 0;
  }
  while (cursor_ < begun_ && done(entry(cursor_))) pass(entry(cursor_));
  if (cursor_ < begun_ && !entry(cursor_).wants_data()) {
    const auto progressed = static_cast<std::uint32_t>(progress(entry(cursor_)));
    cursor_packet_ = std::max(cursor_packet_, progressed);
  }
}

/// Stops sending. flush() then completes the done requests before `index` in success, that request
/// with its first error, and all others as flushed.
void Requester::fail(std::uint64_t index, WorkStatus status, Reason reason) {
  assert(index >= head_ && index < tail_);
  auto& e = entry(index);
  if (e.status == WorkStatus::kSuccess) refuse(e, status, reason);
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
    if (head_ == tail_) {
      if (!qp_.options().has_send_queue) return used;
      if (lent_ == nullptr) (void)grow();
      auto& e = entry(tail_);
      e.clear();
      const auto fetched = qp_.queues_.fetch_send(e.request);
      if (fetched == Fetch::kNothing || fetched == Fetch::kUnreadable) {
        cursor_ = begun_ = head_;
        cursor_packet_ = 0;
        reads_in_flight_ = 0;
        unacked_ = sent_end_ = next_psn_;
        return used;
      }
      ++tail_;
    }
    auto& e = entry(head_);
    if (!is_released(e)) return used;
    if (head_ >= flushed_from_ && head_ != failed_) {
      refuse(e, WorkStatus::kFlushed, Reason::kFlushed);
    }
    complete_head();
  }
  return used;
}

}  // namespace softhca::rdma
