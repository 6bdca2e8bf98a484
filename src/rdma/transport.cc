#include "rdma/transport.h"

#include <fmt/format.h>

#include <memory>

#include "rdma/requester.h"
#include "rdma/responder.h"
#include "util/inspect.h"

namespace softhca::rdma {
namespace {

bool is_path_mtu(std::uint32_t bytes) {
  return bytes >= 256 && bytes <= 4096 && (bytes & (bytes - 1)) == 0;
}

}  // namespace

Transport::Transport(fabric::Port& port, KeyTable& keys, util::Notes& notes,
                     const PortOptions& options)
    : engine_(port, keys, notes, options),
      groups_(options.multicast_groups, options.multicast_members),
      dispatcher_(engine_, groups_),
      scheduler_(engine_) {}
Transport::~Transport() = default;

void Transport::set_pkeys(std::span<const std::uint16_t> pkeys) {
  if (engine_.pkeys.set(pkeys)) engine_.dc_targets.refresh_pkeys();
}

bool Transport::dismantle_tables(util::WorkBudget& work) {
  return groups_.dismantle(work) && engine_.xrc_srqs.dismantle(work) &&
         engine_.dc_targets.dismantle(work);
}

QueuePair& Transport::create_qp(Qpn qpn, QpType type, const QpAttributes& attributes,
                                const QpOptions& options, WorkQueues& queues) {
  return engine_.qps.insert(
      std::make_unique<QueuePair>(engine_, qpn, type, attributes, options, queues));
}

void Transport::destroy_qp(QueuePair& qp) {
  qp.requester_->forget_connection();
  engine_.set_state(qp, QpState::kReset);
  if (engine_.is_gsi(qp)) engine_.gsi.reset();
  groups_.forget(qp.qpn());
  engine_.qps.erase(qp.qpn());
}

tl::expected<void, Reason> Transport::modify(QueuePair& qp, QpState to,
                                             const QpAttributes& attributes, QpAttributeSet given) {
  using enum spec::infiniband::QpAttribute;
  const auto* transition = spec::infiniband::find_transition(qp.type(), qp.state_, to);
  if (transition == nullptr) {
    return tl::unexpected(Reason::kTransitionForbidden);
  }
  auto taken = transition->taken(given);
  // The table gives UD no path MTU. Datagrams are bounded by the port's MTU, which the same
  // attribute sets.
  if (to == QpState::kRtr) taken = taken | QpAttributeSet{kPathMtu};
  if (taken.has(kPathMtu) && !is_path_mtu(attributes.path_mtu)) {
    return tl::unexpected(Reason::kPathMtu);
  }
  if (to != QpState::kReset && to != QpState::kError) qp.take(attributes, taken);
  engine_.set_state(qp, to);
  return {};
}

void Transport::doorbell_send(QueuePair& qp) {
  qp.requester_->queue().notice_posted();
  const auto& rules = state_rules(qp.state_);
  if (rules.sends || rules.finishes || rules.flushes_send) engine_.mark_ready(qp);
}

void Transport::notice_receive(QueuePair& qp) {
  if (state_rules(qp.state_).flushes_receive) engine_.mark_ready(qp);
}

void Transport::fail(QueuePair& qp, QpEvent event, Reason reason) {
  engine_.event(qp, event, reason);
  engine_.to_error(qp);
}

bool Transport::resume(QueuePair& qp, FaultSide side, bool failed) {
  return side == FaultSide::kRequester ? qp.requester_->resume(failed)
                                       : qp.responder_->resume(failed);
}

std::string Transport::inspect() const {
  util::InspectNode all("queue_pairs");
  for (const auto* qp : queue_pairs()) {
    qp->inspect(all.child(fmt::format("qp {:#x}", qp->qpn().value())));
  }
  engine_.dc_targets.inspect(all);
  return all.to_text();
}

}  // namespace softhca::rdma
