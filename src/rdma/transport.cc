#include "rdma/transport.h"

#include <fmt/format.h>

#include <cassert>

#include "rdma/engine.h"
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
    : engine_(std::make_unique<Engine>(port, keys, notes, options)) {}
Transport::~Transport() = default;

GidTable& Transport::gids() { return engine_->addresses.gids; }
void Transport::set_link_attributes(const LinkAttributes& attributes) {
  engine_->addresses.set_attributes(attributes);
}
void Transport::set_pkeys(std::span<const std::uint16_t> pkeys) { engine_->set_pkeys(pkeys); }
void Transport::refresh_pkey(QueuePair& qp) { qp.refresh_pkey(); }
const LinkAttributes& Transport::link_attributes() const { return engine_->addresses.attributes(); }
QueuePair* Transport::find(Qpn qpn) const { return engine_->qps.find(qpn); }
std::vector<QueuePair*> Transport::queue_pairs() const { return engine_->qps.all(); }
const PortCounters& Transport::counters() const { return engine_->counters; }

CongestionControl& Transport::congestion() { return engine_->congestion; }

QueuePair& Transport::create_qp(Qpn qpn, QpType type, const QpAttributes& attributes,
                                const QpOptions& options, WorkQueues& queues) {
  return engine_->qps.insert(
      std::make_unique<QueuePair>(*engine_, qpn, type, attributes, options, queues));
}

void Transport::destroy_qp(QueuePair& qp) {
  qp.requester_->forget_connection();
  engine_->forget(qp);
}

bool Transport::leave_groups(QueuePair& qp, util::WorkBudget& work) {
  return engine_->groups.leave(qp.qpn(), work);
}

bool Transport::dismantle_tables(util::WorkBudget& work) {
  return engine_->groups.dismantle(work) && engine_->xrc_srqs.dismantle(work) &&
         engine_->dc_targets.dismantle(work);
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
  engine_->set_state(qp, to);
  return {};
}

void Transport::set_ack_patience(unsigned timeouts) { engine_->ack_patience = timeouts; }

void Transport::set_gsi(std::optional<Qpn> qpn) { engine_->gsi = qpn; }

bool Transport::attach(Qpn qpn, const Gid& gid) {
  assert(find(qpn) != nullptr);
  return engine_->groups.attach(qpn, gid);
}
bool Transport::detach(Qpn qpn, const Gid& gid) { return engine_->groups.detach(qpn, gid); }
std::span<const Qpn> Transport::group(const Gid& gid) const { return engine_->groups.members(gid); }
std::size_t Transport::group_count() const { return engine_->groups.count(); }

void Transport::add_xrc_srq(XrcSrqn number, const XrcSrq& srq) {
  engine_->xrc_srqs.add(number, srq);
}

void Transport::remove_xrc_srq(XrcSrqn number) { engine_->xrc_srqs.remove(number); }

void Transport::add_dc_target(Qpn qpn, const DcTargetAttributes& attributes, WorkQueues& queues) {
  assert(find(qpn) == nullptr);
  engine_->dc_targets.add(qpn, attributes, queues);
}

bool Transport::drain_dc_target(Qpn qpn, util::WorkBudget& work) {
  return engine_->dc_targets.drain(*engine_->dc_targets.find(qpn), work);
}

void Transport::remove_dc_target(Qpn qpn) { engine_->dc_targets.remove(qpn); }

const DcTarget* Transport::find_dc_target(Qpn qpn) const { return engine_->dc_targets.find(qpn); }

bool Transport::resume_dc_target(Qpn qpn, bool failed) {
  return engine_->dc_targets.resume(*engine_->dc_targets.find(qpn), failed);
}

void Transport::doorbell_send(QueuePair& qp) {
  qp.requester_->queue().notice_posted();
  const auto& rules = state_rules(qp.state_);
  if (rules.sends || rules.finishes || rules.flushes_send) engine_->mark_ready(qp);
}

void Transport::notice_receive(QueuePair& qp) {
  if (state_rules(qp.state_).flushes_receive) engine_->mark_ready(qp);
}

void Transport::fail(QueuePair& qp, QpEvent event, Reason reason) {
  engine_->event(qp, event, reason);
  engine_->to_error(qp);
}

bool Transport::resume(QueuePair& qp, FaultSide side, bool failed) {
  return side == FaultSide::kRequester ? qp.requester_->resume(failed)
                                       : qp.responder_->resume(failed);
}

bool Transport::handle_frame(const wire::Frame& frame, util::Time now) {
  return engine_->handle_frame(frame, now);
}

util::Time Transport::run(util::Time now, util::WorkBudget& work) {
  return engine_->run(now, work);
}

void Transport::note_time(util::Time now) { engine_->now = now; }

void Transport::run_only(QueuePair& qp, util::WorkBudget& work) { engine_->run_only(qp, work); }

std::string Transport::inspect() const {
  util::InspectNode all("queue_pairs");
  for (const auto* qp : queue_pairs()) {
    qp->inspect(all.child(fmt::format("qp {:#x}", qp->qpn().value())));
  }
  engine_->dc_targets.inspect(all);
  return all.to_text();
}

}  // namespace softhca::rdma
