#include "rdma/dc_targets.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <chrono>
#include <utility>

#include "rdma/engine.h"
#include "rdma/requester.h"
#include "rdma/responder.h"
#include "wire/vlan.h"

namespace softhca::rdma {
namespace {

/// If the port has no room, a connection silent for this long may be dropped: its initiator may
/// have vanished. A live initiator would have retried by then.
constexpr util::Duration kSilence = std::chrono::seconds(10);
/// A connection idle for this long may be dropped. Either its initiator has vanished, or it is
/// idle, and its next request may connect again.
constexpr util::Duration kIdle = std::chrono::seconds(60);
/// How long a target that drains sends the responses that are pending. Its driver waits for it, and
/// peers may make the responses as long as their READs, and drain them slowly.
constexpr util::Duration kDrainPatience = std::chrono::milliseconds(250);
/// Old connections that are inspected for each new one.
constexpr int kForgottenAtOnce = 4;

// Work (util::WorkBudget) of making a connection, and of ending and destroying it.
constexpr std::int64_t kMakeWork = 2000;
constexpr std::int64_t kEndWork = 600;
/// Work of checking whether a connection waits for a page.
constexpr std::int64_t kLookWork = 10;

/// Requests come from the wire, receives from the device's shared receive queue.
constexpr QpOptions connection_options(const DcTargetAttributes& target) {
  return {.has_send_queue = false,
          .has_receive_queue = false,
          .uses_srq = true,
          .completion_data = target.completion_data,
          .counters = target.counters};
}

/// Responses go to the source of the request, from the address that it was sent to.
Path path_back(const wire::IbAddress& address, const Path& of_target) {
  auto path = of_target;
  path.dst_mac = address.source_mac;
  path.dst_gid = address.source_gid;
  path.dst_lid = address.source_lid;
  path.service_level = address.service_level;
  path.global = address.is_global();
  SourceAddress source;
  source.gid = address.destination_gid;
  source.mac = address.destination_mac;
  if (address.vlan_tci) {
    util::Struct<wire::VlanLayout> tag;
    tag.set(wire::VlanLayout::tci, *address.vlan_tci);
    source.vlan_id = static_cast<std::uint16_t>(tag.get(wire::VlanLayout::vid));
  }
  source.roce_v2 = address.encapsulation == wire::Encapsulation::kRoceV2;
  source.lid = address.destination_lid;
  path.own_source = source;
  return path;
}

/// Compares modulo 2^32.
bool is_later(std::uint32_t session, std::uint32_t than) {
  return static_cast<std::int32_t>(session - than) > 0;
}

}  // namespace

DcTarget::DcTarget(Qpn qpn, const DcTargetAttributes& attributes, WorkQueues& queues)
    : qpn_(qpn), attributes_(attributes), queues_(queues) {}
DcTarget::~DcTarget() = default;

DcConnection::DcConnection(Engine& engine, DcTarget& the_target, const DcTarget::Peer& the_peer)
    : target(the_target),
      peer(the_peer),
      qp(engine, the_target.qpn_, QpType::kDcResponder, the_target.attributes_.connection,
         connection_options(the_target.attributes_), the_target.queues_) {}

// Verbs -------------------------------------------------------------------------------------------

void DcTargets::add(Qpn qpn, const DcTargetAttributes& attributes, WorkQueues& queues) {
  assert(engine_.qps.find(qpn) == nullptr);
  const auto [place, added] = targets_.try_emplace(qpn, qpn, attributes, queues);
  (void)place;
  assert(added && "the device hands out each number once");
  (void)added;
}

bool DcTargets::drain(Qpn qpn, util::WorkBudget& work) {
  auto& target = *find(qpn);
  if (!std::exchange(target.draining_, true)) target.drain_end_ = engine_.now + kDrainPatience;
  return end_all(target, work);
}

void DcTargets::remove(Qpn qpn) {
  assert(find(qpn) != nullptr && find(qpn)->connections() == 0);
  targets_.erase(qpn);
}

bool DcTargets::dismantle(util::WorkBudget& work) {
  for (auto& [qpn, target] : targets_) {
    while (!target.connections_.empty()) {
      if (work.spent()) return false;
      forget(*target.connections_.begin()->second);
      work.charge(kEndWork);
    }
  }
  targets_.clear();
  return true;
}

/// Ends the connections without pending responses. A draining target takes no new requests, so in
/// time it has none.
bool DcTargets::end_all(DcTarget& target, util::WorkBudget& work) {
  const bool is_late = engine_.now >= target.drain_end_;
  for (auto at = target.connections_.begin(); at != target.connections_.end();) {
    if (work.spent()) return false;
    auto& connection = *(at++)->second;
    work.charge(kEndWork);
    if (is_late || !connection.qp.responder_->has_answers()) forget(connection);
  }
  return target.connections_.empty();
}

// Packets -----------------------------------------------------------------------------------------

/// The checks that precede any look-up or new connection.
bool DcTargets::admits(DcTarget& target, const wire::IbPacket& packet) {
  const auto& info = packet.info();
  const auto drop = [&](Drop counter, Reason why) {
    engine_.drop(nullptr, counter, why, info.name);
    return false;
  };
  if (info.service != wire::Service::DC || !info.request) {
    return drop(Drop::kService, Reason::kOtherService);
  }
  const auto pkey = engine_.pkeys.get(target.attributes_.connection.pkey_index);
  if (!spec::infiniband::may_talk(packet.bth.pkey, pkey)) {
    return drop(Drop::kPkey, Reason::kWrongPkey);
  }
  if (packet.ext.dceth.key != target.attributes_.key) {
    ++target.key_violations_;
    target.queues_.handle_event(QpEvent::kDcKeyViolation, Reason::kWrongDcKey);
    return drop(Drop::kDcKey, Reason::kWrongDcKey);
  }
  if (target.draining_) return drop(Drop::kQpState, Reason::kDcTargetDrains);
  return true;
}

QueuePair* DcTargets::connection_for(DcTarget& target, const wire::IbPacket& packet) {
  if (!admits(target, packet)) return nullptr;
  const auto drop = [&](Reason why) -> QueuePair* {
    engine_.drop(nullptr, Drop::kDcConnection, why, packet.info().name);
    return nullptr;
  };
  const auto& eth = packet.ext.dceth;
  const DcTarget::Peer peer{packet.address.source_gid, packet.address.source_lid, eth.source_qp};
  const auto found = target.connections_.find(peer);
  auto* connection = found == target.connections_.end() ? nullptr : found->second.get();
  const bool same = connection != nullptr && connection->session == eth.session;
  if (packet.info().operation == wire::Operation::kDisconnect) {
    if (same && connection->open) end(*connection);
    return nullptr;
  }
  if (same) {
    if (!connection->open) return drop(Reason::kDcNotConnected);
    note_packet(*connection);
    return &connection->qp;
  }
  if (connection != nullptr && !is_later(eth.session, connection->session) &&
      engine_.now - connection->last_packet < kSilence) {
    return drop(Reason::kDcOldSession);
  }
  if (!eth.may_connect) return drop(Reason::kDcNotConnected);
  if (connection == nullptr) connection = make(target, peer);
  if (connection == nullptr) {
    engine_.drop(nullptr, Drop::kResources, Reason::kDcNoResponder, packet.info().name);
    return nullptr;
  }
  open(*connection, packet);
  return &connection->qp;
}

bool DcTargets::resume(Qpn qpn, bool failed) {
  const auto& target = *find(qpn);
  engine_.keys.work().charge(static_cast<std::int64_t>(target.connections()) * kLookWork);
  for (const auto& [peer, connection] : target.connections_) {
    if (connection->qp.responder_->resume(failed)) return true;
  }
  return false;
}

std::uint32_t DcTargets::new_session() {
  using std::chrono::microseconds;
  const auto clock = std::chrono::duration_cast<microseconds>(engine_.now.time_since_epoch());
  session_ = std::max(session_ + 1, static_cast<std::uint64_t>(clock.count()));
  return static_cast<std::uint32_t>(session_);
}

// Connections -------------------------------------------------------------------------------------

/// A new connection. Null if there is no room.
DcConnection* DcTargets::make(DcTarget& target, const DcTarget::Peer& peer) {
  forget_old();
  if (!make_room()) return nullptr;
  engine_.keys.work().charge(kMakeWork);
  auto made = std::make_unique<DcConnection>(engine_, target, peer);
  auto* connection = made.get();
  target.connections_.emplace(peer, std::move(made));
  connection->at = ended_.insert(ended_.end(), connection);
  return connection;
}

/// Drops some old connections, so that their number stays near that of the last minute.
void DcTargets::forget_old() {
  for (int i = 0; i != kForgottenAtOnce && !ended_.empty(); ++i) {
    if (engine_.now - ended_.front()->last_packet < kSilence) break;
    engine_.keys.work().charge(kEndWork);
    forget(*ended_.front());
  }
  auto at = open_.begin();
  for (int i = 0; i != kForgottenAtOnce && at != open_.end(); ++i) {
    auto& connection = **at++;
    if (engine_.now - connection.last_packet < kIdle) break;
    if (!connection.qp.responder_->at_rest()) continue;
    engine_.keys.work().charge(kEndWork);
    forget(connection);
  }
}

/// False if all connections are open and recently used.
bool DcTargets::make_room() {
  if (open_.size() + ended_.size() < connections_max_) return true;
  if (!ended_.empty()) {
    forget(*ended_.front());
    return true;
  }
  if (open_.empty() || engine_.now - open_.front()->last_packet < kSilence) return false;
  forget(*open_.front());
  return true;
}

void DcTargets::refresh_pkeys() {
  for (auto& [qpn, target] : targets_) {
    for (auto& [peer, connection] : target.connections_) connection->qp.refresh_pkey();
  }
}

void DcTargets::open(DcConnection& connection, const wire::IbPacket& packet) {
  end(connection);
  auto& qp = connection.qp;
  const auto& target = connection.target.attributes_.connection;
  qp.attributes_ = target;
  qp.attributes_.path = path_back(packet.address, target.path);
  qp.attributes_.remote_qpn = packet.ext.dceth.source_qp;
  qp.attributes_.rq_psn = packet.ext.dceth.first_psn.value();
  qp.invalidate_headers();
  qp.refresh_pkey();
  qp.requester_->handle_attributes();
  qp.responder_->handle_attributes();
  engine_.set_state(qp, QpState::kRtr);
  qp.communication_established_ = true;  // targets do not raise this event
  engine_.set_state(qp, QpState::kRts);
  connection.session = packet.ext.dceth.session;
  connection.open = true;
  ++qp.counters_->rx_dct_connect;
  open_.splice(open_.end(), ended_, connection.at);
  connection.last_packet = engine_.now;
}

void DcTargets::note_packet(DcConnection& connection) {
  connection.last_packet = engine_.now;
  open_.splice(open_.end(), open_, connection.at);
}

/// An unfinished message ends here: its receive completes as flushed.
void DcTargets::end(DcConnection& connection) {
  auto& qp = connection.qp;
  (void)qp.responder_->flush(1);
  engine_.set_state(qp, QpState::kReset);
  if (!connection.open) return;
  connection.open = false;
  ended_.splice(ended_.end(), open_, connection.at);
}

void DcTargets::forget(DcConnection& connection) {
  end(connection);
  ended_.erase(connection.at);
  connection.target.connections_.erase(DcTarget::Peer(connection.peer));
}

void DcTargets::inspect(util::InspectNode& out) const {
  for (const auto& [qpn, target] : targets_) {
    auto& node = out.child(fmt::format("dc_target {:#x}", qpn.value()));
    node.add("draining", target.draining_);
    node.add("key_violations", target.key_violations_);
    for (const auto& [peer, connection] : target.connections_) {
      if (!connection->open) continue;
      connection->qp.inspect(
          node.child(fmt::format("initiator {:#x}", std::get<Qpn>(peer).value())));
    }
  }
}

}  // namespace softhca::rdma
