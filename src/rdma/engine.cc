#include "rdma/engine.h"

#include "rdma/requester.h"
#include "rdma/responder.h"

namespace softhca::rdma {

using util::Time;

QueuePair& QpTable::insert(std::unique_ptr<QueuePair> qp) {
  const auto number = qp->qpn().value();
  const auto chunk = number / kChunk;
  if (chunk >= chunks_.size()) chunks_.resize(chunk + 1);
  if (chunks_[chunk] == nullptr) chunks_[chunk] = std::make_unique<Chunk>();
  auto& place = (*chunks_[chunk])[number % kChunk];
  assert(place == nullptr && "the device hands out each QPN once");
  place = std::move(qp);
  return *place;
}

void QpTable::erase(Qpn qpn) {
  assert(find(qpn) != nullptr);
  (*chunks_[qpn.value() / kChunk])[qpn.value() % kChunk] = nullptr;
}

std::vector<QueuePair*> QpTable::all() const {
  std::vector<QueuePair*> found;
  for (const auto& chunk : chunks_) {
    if (chunk == nullptr) continue;
    for (const auto& qp : *chunk) {
      if (qp != nullptr) found.push_back(qp.get());
    }
  }
  return found;
}

// Arriving frames --------------------------------------------------------------------------------

bool Engine::handle_frame(const wire::Frame& arrived, Time time) {
  now = time;
  const auto parsed = wire::IbPacket::parse(arrived);
  if (!parsed) {
    if (parsed.error() == wire::PacketError::kOther) return false;
    if (parsed.error() == wire::PacketError::kIcrc) {
      drop(nullptr, Drop::kIcrc, Reason::kWrongIcrc);
      return true;
    }
    // Port 4791 is nobody's own: what makes no sense as RoCE may be another program's datagram.
    drop(nullptr, Drop::kMalformed, Reason::kMalformedPacket, to_string(parsed.error()));
    return false;
  }
  const auto& packet = *parsed;
  if (packet.address.encapsulation != wire::Encapsulation::kRoceV2) return false;
  if (packet.bth.dest_qp == wire::kMulticastQpn) return handle_multicast(arrived, packet);
  const auto qpn = packet.bth.dest_qp == wire::kGsiQpn && gsi ? *gsi : packet.bth.dest_qp;
  auto* qp = qps.find(qpn);
  if (qp == nullptr || !is_ours(*qp, packet)) return false;
  ++counters.rx_packets;
  counters.rx_bytes += arrived.size();
  deliver(*qp, arrived, packet);
  return true;
}

/// Whether the packet is for an address of this port.
bool Engine::is_ours(const QueuePair& qp, const wire::IbPacket& packet) const {
  const auto& address = packet.address;
  std::optional<std::uint16_t> vlan;
  if (address.vlan_tci && (*address.vlan_tci & 0xFFF) != 0) vlan = *address.vlan_tci & 0xFFF;
  // A connected QP's own entry is the usual one.
  const auto* own = gids.get(qp.attributes_.path.src_gid_index);
  const bool is_own = own != nullptr && own->roce_v2 && same(own->gid, address.destination_gid) &&
                      own->vlan_id == vlan;
  const auto* entry = is_own ? own : gids.find(address.destination_gid, vlan);
  if (entry == nullptr) return false;
  return same(entry->mac, address.destination_mac) || gids.has_mac(address.destination_mac);
}

bool Engine::handle_multicast(const wire::Frame& arrived, const wire::IbPacket& packet) {
  const auto group = groups.find(packet.address.destination_gid);
  if (group == groups.end() || group->second.empty()) return false;
  ++counters.rx_packets;
  ++counters.rx_multicast_packets;
  counters.rx_bytes += arrived.size();
  const bool from_here = gids.contains(packet.address.source_gid);
  for (const auto qpn : group->second) {
    auto* qp = qps.find(qpn);
    if (qp == nullptr || !qp->service().datagram) continue;
    if (from_here && qp->options().block_multicast_loopback) continue;
    deliver(*qp, arrived, packet);
  }
  return true;
}

/// A connected QP listens to its peer only.
bool Engine::from_peer(const QueuePair& qp, const wire::IbPacket& packet) const {
  return !qp.service().connected || same(packet.address.source_gid, qp.attributes_.path.dst_gid);
}

void Engine::deliver(QueuePair& qp, const wire::Frame& arrived, const wire::IbPacket& packet) {
  const auto& info = packet.info();
  const auto& service = qp.service();
  if (info.service != service.packets || !(info.request ? service.responds : service.requests)) {
    // Congestion is not acted on (yet): its notifications are no error.
    if (info.service == wire::Service::CNP_CLASS) return;
    return drop(&qp, Drop::kService, Reason::kOtherService, info.name);
  }
  if (qp.state() == QpState::kReset) {
    return drop(&qp, Drop::kQpState, Reason::kQpInReset, info.name);
  }
  if (!from_peer(qp, packet)) return drop(&qp, Drop::kSource, Reason::kNotFromPeer);
  // IBTA 10.9.3: the membership bit on top does not count here, all are full members.
  if (((packet.bth.pkey ^ qp.attributes_.pkey) & 0x7FFF) != 0) {
    return drop(&qp, Drop::kPkey, Reason::kWrongPkey);
  }
  if (info.request) {
    qp.responder_->handle_request(packet, arrived);
  } else {
    qp.requester_->handle_answer(packet, arrived);
  }
}

// Doing what is due ------------------------------------------------------------------------------

Time Engine::run(Time time, unsigned budget) {
  now = time;
  for (; budget != 0; --budget) {
    auto* qp = timers.expired(now);
    if (qp == nullptr) break;
    expire(*qp);
  }
  take_released();
  while (budget != 0) {
    auto* qp = ready.pop_front();
    if (qp == nullptr) break;
    const auto quota = std::min(budget, kQuantum);
    const auto used = serve(*qp, quota);
    if (used == quota) mark_ready(*qp);  // there may be more: at the end of the row again
    budget -= std::max(1u, used);
  }
  return ready.empty() && unreleased.empty() ? std::max(timers.next(), now) : now;
}

void Engine::wait_for_release(QueuePair& qp, std::uint64_t number) {
  qp.awaited_frame_ = number;
  unreleased.push_back(qp);
}

/// Frames are released in the order of their numbers, and QPs came in nearly that order: one that
/// came back for a later frame may wait a little longer than it must.
void Engine::take_released() {
  while (auto* qp = unreleased.front()) {
    if (!released(qp->awaited_frame_)) return;
    unreleased.pop_front();
    mark_ready(*qp);
  }
}

void Engine::expire(QueuePair& qp) {
  if (qp.timers_[Timer::kAck] <= now) qp.requester_->handle_ack_timeout();
  if (qp.timers_[Timer::kRnr] <= now) qp.requester_->handle_rnr_timeout();
}

unsigned Engine::serve(QueuePair& qp, unsigned quota) {
  // Each step may change the state.
  unsigned used = 0;
  if (state_rules(qp.state_).receives) used += qp.responder_->answer(quota);
  if (used < quota && state_rules(qp.state_).finishes) used += qp.requester_->send(quota - used);
  if (used < quota && state_rules(qp.state_).flushes_send) {
    used += qp.requester_->flush(quota - used);
  }
  // After the error that ended the QP, if there is one to be told.
  if (used < quota && state_rules(qp.state_).flushes_receive &&
      !qp.requester_->waits_for_release()) {
    used += qp.responder_->flush(quota - used);
  }
  if (used < quota) report(qp);
  return used;
}

/// Events for having nothing left to do.
void Engine::report(QueuePair& qp) {
  if (qp.state_ == QpState::kSqDrain && qp.requester_->idle() && !qp.requester_->drain_reported) {
    qp.requester_->drain_reported = true;
    event(qp, QpEvent::kSqDrained, Reason::kDrained);
  }
  if (qp.state_ == QpState::kError && qp.options_.uses_srq && !qp.last_wqe_reached_) {
    qp.last_wqe_reached_ = true;
    event(qp, QpEvent::kLastWqeReached, Reason::kLastWqe);
  }
}

// States -----------------------------------------------------------------------------------------

void Engine::set_state(QueuePair& qp, QpState state) {
  const auto from = std::exchange(qp.state_, state);
  switch (state) {
    case QpState::kReset:
      qp.requester_->reset();
      qp.responder_->reset();
      timers.remove(qp);
      ready.remove(qp);
      unreleased.remove(qp);
      qp.communication_established_ = qp.last_wqe_reached_ = false;
      return;
    case QpState::kInit:
      return;
    case QpState::kRtr:
      qp.responder_->start(qp.attributes_.rq_psn);
      return;
    case QpState::kRts:
      if (from == QpState::kRtr) qp.requester_->start(qp.attributes_.sq_psn);
      if (from == QpState::kSqError) {
        // IBTA 10.3.1.7: only what is posted from now on is sent.
        hca.restart_send(qp);
        qp.requester_->restart();
      }
      qp.requester_->refresh_retries();
      return mark_ready(qp);
    case QpState::kSqDrain:
      if (from == QpState::kRts) qp.requester_->drain_reported = false;
      qp.responder_->make_room();
      return mark_ready(qp);
    case QpState::kSqError:
    case QpState::kError:
      qp.requester_->stop_timers();
      if (state == QpState::kError) qp.responder_->stop();
      return mark_ready(qp);
  }
}

void Engine::to_error(QueuePair& qp) {
  if (qp.state_ != QpState::kError && qp.state_ != QpState::kReset) set_state(qp, QpState::kError);
}

void Engine::forget(QueuePair& qp) {
  set_state(qp, QpState::kReset);
  if (is_gsi(qp)) gsi.reset();
  for (auto& [gid, members] : groups) std::erase(members, qp.qpn());
  qps.erase(qp.qpn());
}

// Addresses --------------------------------------------------------------------------------------

bool Engine::address_to(const Gid& gid, const Mac& mac, std::uint8_t gid_index,
                        std::uint8_t priority, wire::IbAddress& address) const {
  const auto* source = gids.get(gid_index);
  if (source == nullptr || !source->roce_v2 || source->gid.is_ipv4() != gid.is_ipv4()) return false;
  address.source_gid = source->gid;
  address.source_mac = source->mac;
  if (source->vlan_id) {
    address.vlan_tci = static_cast<std::uint16_t>(*source->vlan_id | priority << 13);
  }
  address.destination_gid = gid;
  address.destination_mac = mac;
  return true;
}

const wire::IbHeader* Engine::path_header(QueuePair& qp) {
  if (qp.header_generation_ == gids.generation()) return &qp.header_;
  const auto& path = qp.attributes_.path;
  wire::IbAddress address;
  address.traffic_class = path.traffic_class;
  address.flow_label = path.flow_label;
  address.hop_limit = path.hop_limit;
  address.udp_source_port = path.udp_source_port;
  if (!address_to(path.dst_gid, path.dst_mac, path.src_gid_index, path.vlan_priority, address)) {
    note(qp, "packet not sent", Reason::kNoSourceAddress);
    return nullptr;
  }
  qp.header_ = wire::IbHeader(address);
  qp.header_generation_ = gids.generation();
  return &qp.header_;
}

// For people -------------------------------------------------------------------------------------

void Engine::event(QueuePair& qp, QpEvent what, Reason reason) {
  hca.handle_event(qp, what, reason);
}

void Engine::drop(const QueuePair* qp, Drop counter, Reason why, std::string_view detail) {
  ++counters.dropped[static_cast<std::size_t>(counter)];
  if (!util::log_enabled(util::LogLevel::kDebug)) return;
  std::uint64_t held_back = 0;
  if (!drop_log_.allow(now, &held_back)) return;
  const auto& info = describe(why);
  util::log(util::LogLevel::kDebug,
            "rdma: packet for QP {:#x} dropped: {}{}{} ({}, reason {}; {} more not shown)",
            qp != nullptr ? qp->qpn().value() : 0, info.text, detail.empty() ? "" : ": ", detail,
            info.section, static_cast<unsigned>(why), held_back);
}

void Engine::note(const QueuePair& qp, std::string_view what, Reason why) {
  if (!util::log_enabled(util::LogLevel::kInfo)) return;
  std::uint64_t held_back = 0;
  if (!note_log_.allow(now, &held_back)) return;
  const auto& info = describe(why);
  util::log(util::LogLevel::kInfo, "rdma: QP {:#x}: {}: {} ({}, reason {}; {} more not shown)",
            qp.qpn().value(), what, info.text, info.section, static_cast<unsigned>(why), held_back);
}

}  // namespace softhca::rdma
