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

// Costs (util::WorkBudget) of polling a QP, and of destroying a QP or an SRQ.
constexpr std::int64_t kPollWork = 60;
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
      shared_queues_(parts.resources.srq_numbers(), Limits::count(parts.limits.log_max_srq) +
                                                        Limits::count(parts.limits.log_max_rmp)),
      queue_pairs_(parts.resources.queue_numbers(),
                   std::min(Limits::count(parts.limits.log_max_qp), parts.model.qps_max)),
      dcts_(parts.resources.queue_numbers(), kMaxDcts) {}

Rdma::~Rdma() = default;

// Events of the device -------------------------------------------------------------------------

void Rdma::doorbell(QueuePair& qp) {
  qp.send_ring().handle_doorbell();
  transport_.doorbell_send(qp.rdma_qp());
}

// Receive queues -------------------------------------------------------------------------------

Fetch Rdma::fetch_receive(QueuePair& qp, rdma::ReceiveRequest& request, rdma::XrcSrqn srqn) {
  if (qp.uses_srq()) return fetch_shared(qp.srqn(), request);
  if (qp.is_xrc()) return fetch_shared(Srqn(srqn.value()), request);
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
    if (qp.signs_receive_wqes()) return fetch_signed(qp, bytes, request);
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

void Rdma::complete_receive(QueuePair& qp, const rdma::ReceiveCompletion& completion) {
  if (qp.is_xrc()) return complete_xrc_receive(qp, completion);
  const bool failed = completion.status != WorkStatus::kSuccess;
  Cqe cqe;
  encode_responder_cqe(cqe,
                       {.qpn = qp.qpn(),
                        .user_index = receive_user_index(qp),
                        .is_datagram = qp.is_datagram(),
                        .is_gsi = qp.is_gsi()},
                       completion, ticks_);
  write_cqe(qp, qp.receive_cqn(), cqe, failed || completion.solicited);
}

// Completions and events -----------------------------------------------------------------------

void Rdma::complete_send(QueuePair& qp, const rdma::SendCompletion& completion) {
  const bool failed = completion.status != WorkStatus::kSuccess;
  const auto cookie = SendCookie::unpack(completion.cookie);
  if (failed && !reports_failure(qp, cookie)) return;
  Cqe cqe;
  encode_requester_cqe(cqe, {.qpn = qp.qpn(), .user_index = qp.cqe_user_index()}, completion,
                       ticks_);
  write_cqe(qp, qp.send_cqn(), cqe, failed || has_event(cookie.completion));
}

/// Notes that a QP must fail because a CQE could not be written. It fails later, because the
/// transport is using it now.
[[gnu::noinline]] void Rdma::fail_soon(QueuePair& qp) {
  (void)failing_.add(qp, rdma::Reason::kCompletionQueueFailed);
}

void Rdma::fail_listed(util::WorkBudget& work) {
  failing_.fail_some(
      work, [this](Qpn qpn) { return find_qp(qpn); },
      [this](QueuePair& qp, rdma::Reason reason) {
        transport_.fail(qp.rdma_qp(), rdma::QpEvent::kCatastrophic, reason);
      });
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
  auto* qp = queue_pairs_.emplace(context, std::move(made.queue), *this);
  if (qp == nullptr) return nullptr;
  qp->hold(std::move(made.uses));
  if (parts_.shared_doorbells != nullptr && qp->has_send_queue()) {
    qp->listen(*parts_.shared_doorbells);
  }
  const CounterSetId counters(context.get(QueuePair::Qpc::counter_set_id));
  const rdma::QpOptions options{
      .has_send_queue = qp->has_send_queue(),
      .has_receive_queue = qp->has_receive_queue(),
      .uses_srq = qp->uses_srq(),
      .xrc_domain = rdma::XrcDomain(context.get(QueuePair::Qpc::xrcd)),
      .block_multicast_loopback = context.get(QueuePair::Qpc::block_lb_mc) != 0,
      .completion_data = completion_data(context),
      .big_endian_atomics = made.big_endian_atomics,
      .counters = parts_.resources.q_counter(counters)};
  try {
    qp->bind(transport_.create_qp(qp->qpn(), *QueuePair::transport_type(context), qp->attributes(),
                                  options, *qp),
             made.atomics);
  } catch (const std::bad_alloc&) {
    queue_pairs_.erase(qp->qpn());  // a QP in the table must have its part in the transport
    throw;
  }
  if (qp->service() == QueuePair::Service::REG_UMR) umr_queues_.push_back(qp->qpn());
  if (qp->service() == QueuePair::Service::QP1) {
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
  const auto destroy_other = [](const auto&) { return kQpDestroyWork; };
  return queue_pairs_.dismantle(work, destroy_qp) && dcts_.dismantle(work, destroy_other) &&
         shared_queues_.dismantle(work, destroy_other);
}

tl::expected<void, rdma::Reason> Rdma::modify_qp(QueuePair& qp, QpState to,
                                                 util::View<spec::connectx::qpc> context,
                                                 QueuePair::Uses uses) {
  const bool begins = qp.rdma_qp().state() == QpState::kReset;
  util::Struct<spec::connectx::qpc> before;
  std::ranges::copy(qp.context().bytes(), before.bytes().begin());
  qp.set_context(context, parts_.mapper);
  if (auto modified = transport_.modify(qp.rdma_qp(), to, qp.attributes()); !modified) {
    qp.set_context(before, parts_.mapper);
    return modified;
  }
  if (begins) qp.begin_record();
  const CounterSetId counters(context.get(QueuePair::Qpc::counter_set_id));
  qp.rdma_qp().set_counters(parts_.resources.q_counter(counters));
  qp.rdma_qp().set_completion_data(completion_data(context));
  qp.hold(std::move(uses));
  return {};
}

tl::expected<void, rdma::Reason> Rdma::move_qp(QueuePair& qp, QpState to) {
  const auto moved = transport_.modify(qp.rdma_qp(), to, qp.attributes());
  // The record must not be read before the next doorbell. Software zeroes it only after 2RST has
  // completed, or never (UCX).
  if (moved && to == QpState::kReset) qp.reset_rings();
  return moved;
}

}  // namespace softhca::connectx
