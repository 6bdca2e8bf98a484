#include "connectx/qp/rdma.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "connectx/queue/receive_wqe.h"
#include "connectx/queue/wqe_fault.h"
#include "pcie/dma_space.h"
#include "util/copy_short.h"

namespace softhca::connectx {

using rdma::Fetch;
using rdma::QpState;
using rdma::WorkStatus;
using spec::connectx::event_type;

namespace {

// Costs (util::WorkBudget) of polling a QP, of reporting a QP whose CQ has failed, and of
// destroying a QP.
constexpr std::int64_t kPollWork = 60;
constexpr std::int64_t kFailWork = 1000;
constexpr std::int64_t kQpDestroyWork = 600;

event_type type_of(rdma::QpEvent event) {
  switch (event) {
    case rdma::QpEvent::kCommunicationEstablished:
      return event_type::COMMUNICATION_ESTABLISHED;
    case rdma::QpEvent::kSqDrained:
      return event_type::SQ_DRAINED;
    case rdma::QpEvent::kLastWqeReached:
      return event_type::LAST_WQE_REACHED;
    case rdma::QpEvent::kCatastrophic:
      break;
    case rdma::QpEvent::kInvalidRequest:
    case rdma::QpEvent::kInvalidXrceth:
    case rdma::QpEvent::kXrcDomainViolation:
      return event_type::INVALID_REQUEST_LOCAL_WQ_ERROR;
    case rdma::QpEvent::kAccessError:
      return event_type::LOCAL_ACCESS_VIOLATION_WQ_ERROR;
    case rdma::QpEvent::kDcKeyViolation:
      return event_type::DCT_ACCESS_KEY_VIOLATION;
  }
  return event_type::LOCAL_WQ_CATASTROPHIC_ERROR;
}

bool is_error(rdma::QpEvent event) {
  switch (event) {
    case rdma::QpEvent::kCommunicationEstablished:
    case rdma::QpEvent::kSqDrained:
    case rdma::QpEvent::kLastWqeReached:
      return false;
    default:
      return true;
  }
}

}  // namespace

Rdma::Rdma(const Parts& parts)
    : parts_(parts),
      transport_(parts.port, parts.memory_keys.table(), parts.notes,
                 {.gids = parts.limits.roce_address_table_size,
                  .multicast_groups = Limits::count(parts.limits.log_max_mcg),
                  .multicast_members = parts.limits.max_qp_mcg,
                  .ack_timeout_min = parts.ack_timeout_min}),
      shared_queues_(parts.limits, parts.resources.srq_numbers(), transport_, parts.event_queues,
                     parts.notes),
      page_faults_(parts.event_queues),
      completion_writer_(parts.completion_queues),
      wqe_reader_(parts.blue_flame, parts.notes, parts.trace),
      queue_pairs_(parts.resources.queue_numbers(),
                   std::min(Limits::count(parts.limits.log_max_qp), parts.model.qps_max)),
      dcts_({.limits = parts.limits,
             .event_queues = parts.event_queues,
             .shared_queues = shared_queues_,
             .page_faults = page_faults_,
             .completion_writer = completion_writer_,
             .notes = parts.notes},
            parts.resources, transport_) {}

Rdma::~Rdma() = default;

// Events of the device -------------------------------------------------------------------------

void Rdma::doorbell(QueuePair& qp) {
  qp.send_queue().ring().handle_doorbell();
  transport_.doorbell_send(qp.rdma_qp());
}

// Receive queues -------------------------------------------------------------------------------

Fetch Rdma::fetch_receive(QueuePair& qp, rdma::ReceiveRequest& request, rdma::XrcSrqn srqn) {
  if (qp.context().uses_srq()) return shared_queues_.fetch(qp.context().srqn(), request);
  if (qp.context().is_xrc()) return shared_queues_.fetch(Srqn(srqn.value()), request);
  const bool flushes = qp.rdma_qp().flushes_receives();
  if (flushes) watch(qp);
  auto& ring = qp.receive_ring();
  const auto available = ring.available(qp.record());
  if (!available) return flushes ? Fetch::kNothing : Fetch::kUnreadable;
  if (*available == 0) return Fetch::kNothing;
  request.cookie = ring.consumed();
  if (!flushes) {
    const auto* at = ring.at_next(qp.memory(), ring.stride());
    std::array<std::byte, kReceiveWqeMax> copy;
    const auto bytes = std::span(copy).first(ring.stride());
    if (at != nullptr) {
      util::copy_header(copy.data(), at, ring.stride());
    } else if (!ring.read(qp.memory(), 0, bytes)) {
      return Fetch::kUnreadable;
    } else if (parts_.trace != nullptr) {
      parts_.trace->note(util::TraceStep::kReceiveWqe, {},
                         {{"qpn", qp.qpn().value()}, {"index", ring.consumed()}});
    }
    if (qp.context().signs_wqes()) return fetch_signed(qp, bytes, request);
    decode_scatter_list(bytes, request.sges);
  }
  ring.consume(1);
  return Fetch::kRequest;
}

/// @pre `wqe` is a copy of the next WQE in the QP's receive queue
[[gnu::noinline]] Fetch Rdma::fetch_signed(QueuePair& qp, std::span<const std::byte> wqe,
                                           rdma::ReceiveRequest& request) {
  auto& ring = qp.receive_ring();
  const auto index = ring.consumed();
  ring.consume(1);
  if (!has_receive_signature(wqe, qp.qpn().value(), index)) {
    request.fault = reason_of(WqeFault::kReceiveSignature);
    return Fetch::kMalformed;
  }
  decode_scatter_list(wqe.subspan(kReceiveSignatureSize), request.sges);
  return Fetch::kRequest;
}

bool Rdma::fetch_receive_piece(QueuePair& qp, rdma::ReceivePiece& piece) {
  auto& ring = qp.receive_ring();
  if (!qp.has_plain_receives() || ring.available(qp.record()).value_or(0) == 0) return false;
  const auto* at = ring.at_next(qp.memory(), ring.stride());
  if (at == nullptr || !decode_scatter_piece(at, ring.stride(), piece.sge)) return false;
  piece.cookie = ring.consumed();
  ring.consume(1);
  return true;
}

/// Completes a receive of XRC, whose CQ and user index are the SRQ's.
void Rdma::complete_xrc_receive(QueuePair& qp, const rdma::ReceiveCompletion& completion) {
  const auto* srq = shared_queues_.find(Srqn(completion.srqn.value()));
  if (srq == nullptr) return;
  const CqeQueue queue{.qpn = qp.qpn(), .user_index = srq->cqe_user_index()};
  if (!completion_writer_.write_receive(srq->attributes().cqn, queue, completion)) fail_soon(qp);
}

void Rdma::complete_receive(QueuePair& qp, const rdma::ReceiveCompletion& completion) {
  if (qp.context().is_xrc()) return complete_xrc_receive(qp, completion);
  const CqeQueue queue{.qpn = qp.qpn(),
                       .user_index = qp.context().receive_user_index(),
                       .is_datagram = qp.send_queue().is_datagram(),
                       .is_gsi = qp.context().is_gsi()};
  if (!completion_writer_.write_receive(qp.context().receive_cqn(), queue, completion))
    fail_soon(qp);
}

// Completions and events -----------------------------------------------------------------------

void Rdma::complete_send(QueuePair& qp, const rdma::SendCompletion& completion) {
  const bool failed = completion.status != WorkStatus::kSuccess;
  const auto cookie = SendCookie::unpack(completion.cookie);
  if (failed && !qp.send_queue().reports_failure(cookie)) return;
  const CqeQueue queue{.qpn = qp.qpn(), .user_index = qp.context().send_user_index()};
  const bool event = failed || has_event(cookie.completion);
  if (!completion_writer_.write_send(qp.context().send_cqn(), queue, completion, event))
    fail_soon(qp);
}

void Rdma::complete_send_with(QueuePair& qp, const rdma::SendCompletion& completion,
                              std::span<const std::byte> data) {
  const CqeQueue queue{.qpn = qp.qpn(), .user_index = qp.context().send_user_index()};
  const auto room = qp.rdma_qp().options().completion_data.of_reads;
  if (!completion_writer_.write_send_with(qp.context().send_cqn(), queue, completion, data, room)) {
    fail_soon(qp);
  }
}

void Rdma::complete_receive_with(QueuePair& qp, const rdma::ReceiveCompletion& completion,
                                 std::span<const std::byte> data) {
  const CqeQueue queue{.qpn = qp.qpn(), .user_index = qp.context().receive_user_index()};
  const auto room = qp.rdma_qp().options().completion_data.of_sends;
  if (!completion_writer_.write_receive_with(qp.context().receive_cqn(), queue, completion, data,
                                             room)) {
    fail_soon(qp);
  }
}

/// Notes that a QP must fail because a CQE could not be written. It fails later, because the
/// transport is using it now.
[[gnu::noinline]] void Rdma::fail_soon(QueuePair& qp) {
  if (!std::exchange(qp.fails, true)) failing_.push_back(qp.qpn());
}

/// Fails the noted QPs. The list is short: each of its QPs has just completed a request.
void Rdma::fail_listed(util::WorkBudget& work) {
  const auto list = std::exchange(failing_, {});
  work.charge(static_cast<std::int64_t>(list.size()) * kFailWork);
  for (const auto qpn : list) {
    auto* qp = find_qp(qpn);
    if (qp == nullptr || !qp->fails) continue;
    transport_.fail(qp->rdma_qp(), rdma::QpEvent::kCatastrophic,
                    rdma::Reason::kCompletionQueueFailed);
  }
}

void Rdma::handle_event(QueuePair& qp, rdma::QpEvent event, rdma::Reason reason) {
  const auto type = type_of(event);
  if (is_error(event)) {
    note(qp, to_string(type), rdma::describe(reason), reason);
  }
  parts_.event_queues.post(type, 0, EventQueues::queue_data(qp.qpn()));
}

// Receive queues that flush --------------------------------------------------------------------

void Rdma::watch(QueuePair& qp) {
  flush_poller_.watch(qp);
  next_poll_ = now_ + flush_poller_.back_off();
}

void Rdma::unwatch(QueuePair& qp) {
  flush_poller_.unwatch(qp);
  if (flush_poller_.empty()) next_poll_ = util::kNever;
}

/// Polls the doorbell records of QPs in ERR. A ULP that drains such a QP posts a receive WQE
/// without a doorbell (mlx5 driver interface 8.1).
void Rdma::poll_watched(util::Time now, util::WorkBudget& work) {
  next_poll_ = flush_poller_.poll(now, work, [&](QueuePair& qp) {
    work.charge(kPollWork);
    if (!qp.rdma_qp().flushes_receives()) return false;
    // When the transport fetches the new WQEs, the poll interval becomes short again.
    if (qp.receive_ring().has_news(qp.record())) transport_.notice_receive(qp.rdma_qp());
    // A record may be in memory that is reached by messages.
    work.charge(pcie::RemoteAccesses::take_work());
    return true;
  });
}

// Verbs of the commands ------------------------------------------------------------------------

QueuePair* Rdma::add_qp(util::View<spec::connectx::qpc> context, NewQp made) {
  auto* qp = queue_pairs_.emplace(context, std::move(made.queue), parts_.model.send_queue_alignment,
                                  *this);
  if (qp == nullptr) return nullptr;
  qp->hold(std::move(made.uses));
  if (parts_.shared_doorbells != nullptr && qp->context().has_send_queue()) {
    qp->listen(*parts_.shared_doorbells);
  }
  const CounterSetId counters(context.get(QpContext::Layout::counter_set_id));
  const rdma::QpOptions options{
      .has_send_queue = qp->context().has_send_queue(),
      .has_receive_queue = qp->context().has_receive_queue(),
      .uses_srq = qp->context().uses_srq(),
      .xrc_domain = rdma::XrcDomain(context.get(QpContext::Layout::xrcd)),
      .block_multicast_loopback = context.get(QpContext::Layout::block_lb_mc) != 0,
      .completion_data = completion_writer_.data_of(context),
      .big_endian_atomics = made.big_endian_atomics,
      .counters = parts_.resources.q_counter(counters)};
  try {
    qp->bind(transport_.create_qp(qp->qpn(), *QpContext::transport_type(context),
                                  qp->context().attributes(parts_.limits), options, *qp),
             made.atomics);
  } catch (const std::bad_alloc&) {
    queue_pairs_.erase(qp->qpn());  // a QP in the table must have its part in the transport
    throw;
  }
  if (qp->context().service() == QpContext::Service::REG_UMR) umr_queues_.push_back(qp->qpn());
  if (qp->context().service() == QpContext::Service::QP1) {
    gsi_ = qp->qpn();
    transport_.set_gsi(gsi_);
  }
  return qp;
}

void Rdma::remove_qp(QueuePair& qp) {
  if (gsi_ == qp.qpn()) {
    gsi_.reset();
    transport_.set_gsi(std::nullopt);
  }
  unwatch(qp);
  std::erase(umr_queues_, qp.qpn());
  transport_.destroy_qp(qp.rdma_qp());
  queue_pairs_.erase(qp.qpn());
}

bool Rdma::dismantle(util::WorkBudget& work) {
  if (!transport_.dismantle_tables(work)) return false;
  const auto destroy_qp = [&](QueuePair& qp) {
    transport_.destroy_qp(qp.rdma_qp());
    return kQpDestroyWork + parts_.memory_keys.table().take_work() + qp.memory().dismantle_work();
  };
  return queue_pairs_.dismantle(work, destroy_qp) && dcts_.dismantle(work) &&
         shared_queues_.dismantle(work);
}

tl::expected<void, rdma::Reason> Rdma::modify_qp(QueuePair& qp, QpState to,
                                                 util::View<spec::connectx::qpc> context,
                                                 QueuePair::Uses uses) {
  const bool begins = qp.rdma_qp().state() == QpState::kReset;
  util::Struct<spec::connectx::qpc> before;
  std::ranges::copy(qp.context().view().bytes(), before.bytes().begin());
  qp.set_context(context, parts_.mapper);
  if (auto modified = transport_.modify(qp.rdma_qp(), to, qp.context().attributes(parts_.limits));
      !modified) {
    qp.set_context(before, parts_.mapper);
    return modified;
  }
  if (begins) qp.begin_record();
  const CounterSetId counters(context.get(QpContext::Layout::counter_set_id));
  qp.rdma_qp().set_counters(parts_.resources.q_counter(counters));
  qp.rdma_qp().set_completion_data(completion_writer_.data_of(context));
  qp.hold(std::move(uses));
  return {};
}

tl::expected<void, rdma::Reason> Rdma::move_qp(QueuePair& qp, QpState to) {
  const auto moved = transport_.modify(qp.rdma_qp(), to, qp.context().attributes(parts_.limits));
  // The record must not be read before the next doorbell. Software zeroes it only after 2RST has
  // completed, or never (UCX).
  if (moved && to == QpState::kReset) qp.reset_rings();
  return moved;
}

}  // namespace softhca::connectx
