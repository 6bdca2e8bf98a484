#include "connectx/qp/rdma.h"

#include <algorithm>
#include <new>
#include <utility>

#include "pcie/dma_space.h"

namespace softhca::connectx {

using rdma::QpState;

namespace {

// Costs (util::WorkBudget) of polling a QP, and of destroying a QP.
constexpr std::int64_t kPollWork = 60;
constexpr std::int64_t kQpDestroyWork = 600;

}  // namespace

Rdma::Rdma(const Parts& parts)
    : parts_(parts),
      transport_(parts.port, parts.memory_keys.table(), parts.notes,
                 {.gids = parts.limits.roce_address_table_size,
                  .multicast_groups = Limits::count(parts.limits.log_max_mcg),
                  .multicast_members = parts.limits.max_qp_mcg,
                  .ack_timeout_min = parts.ack_timeout_min}),
      shared_queues_(parts.limits, parts.resources, transport_.xrc_srqs(), parts.event_queues,
                     parts.notes),
      page_faults_(parts.event_queues),
      completion_writer_(parts.completion_queues),
      wqe_reader_(parts.blue_flame, parts.notes, parts.trace),
      queue_pairs_(parts.resources.queue_numbers(),
                   std::min(Limits::count(parts.limits.log_max_qp), parts.model.qps_max),
                   parts.resources.first_queue()),
      dcts_({.limits = parts.limits,
             .event_queues = parts.event_queues,
             .shared_queues = shared_queues_,
             .page_faults = page_faults_,
             .completion_writer = completion_writer_,
             .notes = parts.notes},
            parts.resources, transport_.dc_targets()) {}

Rdma::~Rdma() = default;

// Events of the device -------------------------------------------------------------------------

void Rdma::doorbell(QueuePair& qp) {
  qp.send_queue().ring().handle_doorbell();
  transport_.doorbell_send(qp.rdma_qp());
}

/// Runs the kernel's REG_UMR QPs. Those of processes wait for a whole turn, because a process may
/// post any request to them.
void Rdma::run_key_changes(util::Time now, util::WorkBudget& work) {
  set_now(now);
  transport_.note_time(now);
  for (const auto qpn : umr_queues_) {
    const auto owner = parts_.resources.user_contexts().owner(Owned::QP, qpn.value());
    if (owner == UserContexts::kKernel) transport_.run_only(find_qp(qpn)->rdma_qp(), work);
  }
}

// QPs whose CQ failed ---------------------------------------------------------------------------

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

// Fault rules ----------------------------------------------------------------------------------

void Rdma::follow_fault_rules() {
  queue_pairs_.for_each([this](QueuePair& qp) {
    if (qp.follow_fault_rules(parts_.event_queues.faults())) {
      transport_.doorbell_send(qp.rdma_qp());
    }
  });
}

/// Drops CQEs that a fault rule holds back: software that destroys a QP expects none later.
void Rdma::drop_held(const QueuePair& qp) {
  if (!parts_.event_queues.faults()) return;
  for (const auto cqn : {qp.context().send_cqn(), qp.context().receive_cqn()}) {
    if (auto* cq = parts_.completion_queues.find(cqn)) cq->drop_held(qp.qpn());
  }
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
    if (qp.receive_queue().ring().has_news(qp.record())) transport_.notice_receive(qp.rdma_qp());
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
                                  qp->context().attributes(parts_.limits), options, qp->queues()),
             made.atomics);
  } catch (const std::bad_alloc&) {
    queue_pairs_.erase(qp->qpn());  // a QP in the table must have its part in the transport
    throw;
  }
  if (const auto& faults = parts_.event_queues.faults()) (void)qp->follow_fault_rules(faults);
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
  drop_held(qp);
  std::erase(umr_queues_, qp.qpn());
  transport_.destroy_qp(qp.rdma_qp());
  queue_pairs_.erase(qp.qpn());
}

bool Rdma::dismantle(util::WorkBudget& work) {
  if (!transport_.dismantle_tables(work)) return false;
  const auto destroy_qp = [&](QueuePair& qp) {
    transport_.destroy_qp(qp.rdma_qp());
    return kQpDestroyWork + parts_.memory_keys.table().work().drain() +
           qp.memory().dismantle_work();
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
  if (moved && to == QpState::kReset) {
    drop_held(qp);
    qp.reset_rings();
  }
  return moved;
}

}  // namespace softhca::connectx
