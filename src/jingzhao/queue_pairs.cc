#include "jingzhao/queue_pairs.h"

#include <algorithm>
#include <utility>

#include "jingzhao/qp_attributes.h"
#include "jingzhao/qp_events.h"

namespace softhca::jingzhao {

using rdma::QpState;
using spec::jingzhao::qp_context;

namespace {

/// Work of checking that a QP still has all its resources.
constexpr std::int64_t kCheckWork = 150;
/// Work for each QP when the port changes: its P_Key is read and its headers are built again.
constexpr std::int64_t kRefreshWork = 80;
/// Work of polling a QP that flushes its receives.
constexpr std::int64_t kPollWork = 50;
/// Work for each QPN without a QP.
constexpr std::int64_t kPlaceWork = 1;

}  // namespace

QueuePairs::QueuePairs(const Parts& parts)
    : parts_(parts),
      contexts_({.icm = &parts.icm, .base = parts.base, .entry_size = limits::kQpcSize},
                parts.cache, this),
      queue_pairs_(std::size_t{1} << parts.log_count),
      losses_(end()),
      transport_(parts.port, parts.keys, parts.notes, {.link = link()}) {
  take_link_attributes();
}

void QueuePairs::take_link_attributes() {
  if (parts_.infiniband != nullptr) {
    transport_.set_link_attributes(parts_.infiniband->attributes());
    transport_.set_pkeys(parts_.infiniband->pkeys());
  }
  next_refreshed_ = count_ == 0 ? end() : 0;
  next_poll_ = util::Time{};
}

bool QueuePairs::refresh_pkeys(util::WorkBudget& work) {
  for (; next_refreshed_ != end() && !work.spent(); ++next_refreshed_) {
    work.charge(kPlaceWork);
    auto* qp = find(Qpn(next_refreshed_));
    if (qp == nullptr) continue;
    work.charge(kRefreshWork);
    qp->rdma_qp().refresh_pkey();
  }
  return next_refreshed_ == end();
}

// Commands ---------------------------------------------------------------------------------------

namespace {

/// A WQE has at least one unit.
constexpr std::uint32_t kLogUnit = 4;

CommandResult check_pkey_index(util::View<spec::jingzhao::qp_context> context) {
  if (context.get(spec::jingzhao::qp_context::pkey_index) < limits::kPkeys) return {};
  return refuse(Status::BAD_PARAM, "3.2.1.1", "the P_Key table has max_pkeys entries");
}

/// Checks the context of a new QP.
CommandResult check_context(Qpn qpn, util::View<qp_context> context,
                            const QueuePairs::Parts& parts) {
  if (!jingzhao::type_of(context)) {
    return refuse(Status::BAD_PARAM, "3.2.6.1", "there is no such type of QP");
  }
  if (parts.rules.has_special_qps && qpn.value() < (1u << limits::kLogReservedQps)) {
    const bool gsi = qpn == wire::kGsiQpn && *jingzhao::type_of(context) == rdma::QpType::kUd;
    if (!gsi) return refuse(Status::BAD_PARAM, "3.2.1.1", "the QP is a reserved one");
  }
  const auto fits = [&](auto length, auto log_stride) {
    const auto stride = std::clamp(context.get(log_stride), kLogUnit, limits::kLogMaxWqe);
    return context.get(length) <= 1u << (limits::kLogQpSize + stride);
  };
  if (!fits(qp_context::snd_wqe_len, qp_context::sq_entry_sz_log) ||
      !fits(qp_context::rcv_wqe_len, qp_context::rq_entry_sz_log)) {
    return refuse(Status::BAD_PARAM, "3.2.6.1", "a queue is longer than max_qp_sz WQEs");
  }
  for (const auto cqn : {context.get(qp_context::cqn_snd), context.get(qp_context::cqn_rcv)}) {
    if (!parts.completion_queues.contains(parts.numbering.cqn(cqn))) {
      return refuse(Status::BAD_PARAM, "3.2.6.1", "no such CQ");
    }
  }
  return check_pkey_index(context);
}

/// Checks the fields that identify the command in MODIFY_QP's mailbox. `end`: size of the table.
CommandResult check_request(Qpn qpn, QpState to, util::View<qp_context> context,
                            std::uint32_t end) {
  if (qpn.value() >= end) {
    return refuse(Status::BAD_PARAM, "3.2.6.1", "the number is beyond the QPC table");
  }
  if (context.get(qp_context::local_qpn) != qpn.value()) {
    return refuse(Status::BAD_PARAM, "3.2.6.1", "local_qpn is not in_modifier");
  }
  if (context.get(qp_context::state) != static_cast<std::uint32_t>(to_document(to))) {
    return refuse(Status::BAD_PARAM, "3.2.6.1", "the state of flags is not that of the opcode");
  }
  return {};
}

}  // namespace

/// RST2INIT takes every field.
CommandResult QueuePairs::create(Qpn number, util::View<Context> context) {
  const auto qpn = parts_.numbering.qpn(number);
  if (auto good = check_context(qpn, context, parts_); !good) return good;
  const auto made = contexts_.make(qpn.value());
  if (made.bytes == nullptr) {
    return refuse(Status::BAD_PARAM, "3.2.2.1", "no ICM is mapped for the QP context");
  }
  std::ranges::copy(context.bytes(), made.bytes);
  const util::MutableView<Context> kept({made.bytes, Context::kSize});
  kept.set(Context::local_qpn, qpn.value());
  const auto type = *jingzhao::type_of(context);
  auto qp = std::make_unique<QueuePair>(number, parts_.numbering, type, *this);
  const auto attributes = attributes_of(context, link());
  qp->bind(
      transport_.create_qp(qpn, type, attributes, {.datagram_header = false}, qp->work_queues()));
  const auto moved = transport_.modify(qp->rdma_qp(), QpState::kInit, attributes);
  if (!moved) {
    transport_.destroy_qp(qp->rdma_qp());
    return refuse(Status::BAD_PARAM, "A1-2", "the attributes do not allow INIT");
  }
  qp->decode(kept, parts_.numbering, made.brought);
  qp->born = losses_.last();
  if (parts_.faults) (void)qp->follow_fault_rules(parts_.faults);
  // QP1 is the GSI QP by default, unless software has configured another one (CONF_SPECIAL_QP).
  const bool is_gsi = gsi_ ? *gsi_ == qpn : parts_.rules.has_special_qps && qpn == wire::kGsiQpn;
  if (is_gsi) transport_.set_gsi(qpn);
  queue_pairs_[qpn.value()] = std::move(qp);
  ++count_;
  return {};
}

CommandResult QueuePairs::modify(Qpn number, QpState from, QpState to,
                                 util::View<Context> context) {
  const auto qpn = parts_.numbering.qpn(number);
  if (auto good = check_request(qpn, to, context, end()); !good) return good;
  auto* qp = find(qpn);
  const auto state = qp == nullptr ? QpState::kReset : qp->rdma_qp().state();
  if (state != from) return refuse(Status::BAD_PARAM, "A1-2", "the QP is in another state");
  return qp == nullptr ? create(number, context) : transition(*qp, to, context);
}

/// Takes the attributes that the transition requires, and the optional ones that the mask names.
CommandResult QueuePairs::transition(QueuePair& qp, QpState to, util::View<Context> context) {
  auto& rdma_qp = qp.rdma_qp();
  // Table A1-2 requires attributes from INIT to INIT that are optional in InfiniBand.
  const auto given = to == QpState::kInit ? rdma::QpAttributeSet::all()
                                          : optional_attributes(context, parts_.rules);
  const auto* row = spec::infiniband::find_transition(rdma_qp.type(), rdma_qp.state(), to);
  if (row == nullptr) return refuse(Status::BAD_PARAM, "A1-2", "there is no such transition");
  // IBTA 10.3.1.6: requests already begun finish with the attributes that they began with.
  if (to == QpState::kSqDrain && rdma_qp.state() == to && !rdma_qp.drained()) {
    return refuse(Status::BAD_PARAM, "A1-2", "the send queue is not drained");
  }
  if (!refresh(qp)) {
    return refuse(Status::BAD_PARAM, "3.2.2.1", "the ICM of the QP context is not mapped, or gone");
  }
  const auto entry = contexts_.get(qp.qpn().value(), qp.slot);
  const util::MutableView<Context> kept({entry.bytes, Context::kSize});
  qp.update(kept);
  util::Struct<Context> changed;
  std::ranges::copy(kept.bytes(), changed.bytes().begin());
  const auto taken = row->taken(given);
  take_fields(changed, context, taken);
  if (const auto mtu = changed.get(Context::mtu);
      taken.has(spec::infiniband::QpAttribute::kPathMtu) && (mtu == 0 || mtu > limits::kMaxMtu)) {
    return refuse(Status::BAD_PARAM, "3.2.6.1", "mtu is none of 1 to 5");
  }
  if (auto good = check_pkey_index(changed); !good) return good;
  if (!transport_.modify(rdma_qp, to, attributes_of(changed, link()), given)) {
    return refuse(Status::BAD_PARAM, "A1-2", "the attributes do not allow the transition");
  }
  std::ranges::copy(changed.bytes(), kept.bytes().begin());
  contexts_.mark_changed(qp.slot);
  qp.decode(kept, parts_.numbering, entry.brought);
  if (!qp.doorbells.empty()) transport_.doorbell_send(rdma_qp);
  return {};
}

CommandResult QueuePairs::to_error(Qpn number, util::View<Context> context) {
  const auto qpn = parts_.numbering.qpn(number);
  if (auto good = check_request(qpn, QpState::kError, context, end()); !good) return good;
  auto* qp = find(qpn);
  if (qp == nullptr) return refuse(Status::BAD_PARAM, "A1-2", "a QP in RST does not go to ERR");
  (void)transport_.modify(qp->rdma_qp(), QpState::kError, qp->rdma_qp().attributes());
  return {};
}

CommandResult QueuePairs::to_reset(Qpn number) {
  const auto qpn = parts_.numbering.qpn(number);
  if (qpn.value() >= queue_pairs_.size()) {
    return refuse(Status::BAD_PARAM, "3.2.6.1", "the number is beyond the QPC table");
  }
  if (auto* qp = find(qpn)) remove(*qp);
  return {};
}

void QueuePairs::remove(QueuePair& qp) {
  const auto qpn = qp.qpn();
  doorbells_.clear(qp.doorbells);
  flush_poller_.unwatch(qp);
  if (parts_.faults) {
    for (const auto cqn : {qp.send_cqn(), qp.receive_cqn()}) {
      parts_.completion_queues.drop_held(cqn, qp.number());
    }
  }
  transport_.destroy_qp(qp.rdma_qp());
  queue_pairs_[qpn.value()].reset();
  --count_;
}

CommandResult QueuePairs::query(Qpn number, util::MutableView<Context> out) {
  const auto qpn = parts_.numbering.qpn(number);
  if (qpn.value() >= queue_pairs_.size()) {
    return refuse(Status::BAD_PARAM, "3.2.6.2", "the number is beyond the QPC table");
  }
  auto* qp = find(qpn);
  if (qp == nullptr) return {};  // all zero, as RST is 0
  if (!refresh(*qp)) {
    return refuse(Status::BAD_PARAM, "3.2.2.1", "the ICM of the QP context is not mapped, or gone");
  }
  const auto entry = contexts_.get(qpn.value(), qp->slot);
  std::ranges::copy(std::span(entry.bytes, Context::kSize), out.bytes().begin());
  qp->update(out);
  out.set(Context::opt_param_mask, 0);
  return {};
}

void QueuePairs::set_gsi(Qpn qpn) {
  gsi_ = qpn;
  if (find(qpn) != nullptr) transport_.set_gsi(qpn);
}

void QueuePairs::follow_fault_rules() {
  for (const auto& qp : queue_pairs_) {
    if (qp != nullptr && qp->follow_fault_rules(parts_.faults)) {
      transport_.doorbell_send(qp->rdma_qp());
    }
  }
}

// Resources that go away while in use ------------------------------------------------------------

void QueuePairs::lose_icm(std::uint64_t virt, std::uint64_t size) {
  const auto& cqs = parts_.completion_queues;
  losses_.note(contexts_.overlap(virt, size, end()), cqs.contexts().overlap(virt, size, cqs.end()));
  loses_some_ = true;
}

void QueuePairs::lose_cq(Cqn cqn) {
  losses_.note({}, {.first = cqn.value(), .end = cqn.value() + 1});
  loses_some_ = true;
}

/// Has the QP fail if its context or one of its CQs is gone.
void QueuePairs::check_losses(QueuePair& qp) {
  const auto is_lost = [&](Cqn cqn) {
    return !parts_.completion_queues.works(cqn) || losses_.has_lost_cq(cqn, qp.born);
  };
  if (losses_.has_lost_context(qp.qpn(), qp.born)) {
    fail_soon(qp, reason_of(WqeFault::kContextGone));
  } else if (is_lost(qp.send_cqn()) || is_lost(qp.receive_cqn())) {
    fail_soon(qp, rdma::Reason::kCompletionQueueFailed);
  }
}

/// Marks a QP that must fail. It fails later, since the transport may be processing it now.
[[gnu::noinline]] void QueuePairs::fail_soon(QueuePair& qp, rdma::Reason reason) {
  if (failing_.add(qp, reason)) loses_some_ = true;
}

/// Decodes the context again after a reload from host memory, whose contents now apply. Returns
/// true.
bool QueuePairs::decode_slow(QueuePair& qp) {
  const auto entry = contexts_.get(qp.qpn().value(), qp.slot);
  qp.decode(util::View<Context>({entry.bytes, Context::kSize}), parts_.numbering, entry.brought);
  return true;
}

// Doorbells and time -----------------------------------------------------------------------------

[[gnu::noinline]] void QueuePairs::lose_doorbell(QueuePair& qp) {
  fail_soon(qp, reason_of(WqeFault::kDoorbellsFull));
}

namespace {

/// Reports a receive that was posted to a QP in ERR. False if the QP flushes no more receives.
bool poll_receives(QueuePair& qp, rdma::Transport& transport, MemoryKeys& keys,
                   util::WorkBudget& work) {
  work.charge(kPollWork);
  if (!qp.reports_flushed_receives()) return false;
  // A look may load the region of the queue.
  if (qp.receives().has_posted()) transport.notice_receive(qp.rdma_qp());
  charge_memory(keys, work);
  return true;
}

}  // namespace

util::Time QueuePairs::run(util::Time now, util::WorkBudget& work) {
  if (!rung_.empty()) {
    rung_.take([this](Qpn qpn) { return find(qpn); },
               [this](QueuePair& qp) { transport_.doorbell_send(qp.rdma_qp()); });
  }
  if (now >= next_poll_) {
    const bool refreshed = refresh_pkeys(work);
    next_poll_ = flush_poller_.poll(now, work, [&](QueuePair& qp) {
      return poll_receives(qp, transport_, parts_.memory_keys, work);
    });
    if (!refreshed) next_poll_ = now;
  }
  auto next = transport_.run(now, work);
  if (parts_.completion_queues.has_failed()) {
    for (const auto cqn : parts_.completion_queues.take_failed()) lose_cq(cqn);
  }
  if (loses_some_) [[unlikely]]
    next = std::min(next, run_losses(now, work));
  return std::min(next, next_poll_);
}

util::Time QueuePairs::run_losses(util::Time now, util::WorkBudget& work) {
  losses_.check_some(work, [&](Qpn qpn) {
    auto* qp = find(qpn);
    if (qp == nullptr) return;
    work.charge(kCheckWork);
    check_losses(*qp);
  });
  const bool fails = !failing_.empty();
  failing_.fail_some(
      work, [this](Qpn qpn) { return find(qpn); },
      [this](QueuePair& qp, rdma::Reason reason) {
        transport_.fail(qp.rdma_qp(), rdma::QpEvent::kCatastrophic, reason);
      });
  loses_some_ = !losses_.all_checked() || !failing_.empty();
  return loses_some_ || fails ? now : util::kNever;
}

void QueuePairs::watch(QueuePair& qp) {
  flush_poller_.watch(qp);
  next_poll_ = util::Time{};
}

// Events -----------------------------------------------------------------------------------------

void QueuePairs::handle_event(QueuePair& qp, rdma::QpEvent event, rdma::Reason reason) {
  const auto type = event_type_of(event);
  if (type != EventType::COMM_EST && type != EventType::SQ_DRAINED) {
    note(qp, to_string(type), reason);
  }
  parts_.event_queues.post(type, qp.number().value());
}

void QueuePairs::note(const QueuePair& qp, std::string_view what, rdma::Reason reason) {
  parts_.notes.warn("QP {:#x}: {}: {}", qp.qpn().value(), what, text_of(reason));
}

void QueuePairs::update(std::uint32_t index, std::span<std::byte> entry) {
  const auto* qp = queue_pairs_[index].get();
  if (qp != nullptr) qp->update(util::MutableView<Context>(entry));
}

}  // namespace softhca::jingzhao
