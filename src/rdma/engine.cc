#include "rdma/engine.h"

#include "rdma/lent_rings.h"
#include "rdma/requester.h"
#include "rdma/responder.h"
#include "wire/traffic_class.h"
#include "wire/train.h"

namespace softhca::rdma {

using util::Time;

namespace {

/// The path for packets to an unknown QP: every address of the port matches.
const Path kAnyPath{};

}  // namespace

Engine::Engine(fabric::Port& the_port, KeyTable& the_keys, util::Notes& the_notes,
               const PortOptions& options)
    : port(the_port),
      keys(the_keys),
      notes(the_notes),
      addresses(options),
      groups(options.multicast_groups, options.multicast_members),
      requests(options.requests),
      rings(std::make_unique<LentRings>()),
      dc_targets(*this, options.dc_connections),
      ack_timeout_min(options.ack_timeout_min) {}

Engine::~Engine() = default;

/// IBTA 10.9.2: a QP holds an index; the table entry there is its P_Key.
void Engine::set_pkeys(std::span<const std::uint16_t> pkeys) {
  if (std::ranges::equal(pkeys, pkeys_)) return;
  pkeys_.assign(pkeys.begin(), pkeys.end());
  dc_targets.refresh_pkeys();
}

void Engine::note_rings() {
  wants_rings_ = rings->requests.crowded() || requests.left() <= requests.total() / 2;
}

// Arriving frames --------------------------------------------------------------------------------

/// True if this QP may take the packet in its current state.
inline bool Engine::admits(const QueuePair& qp, const wire::IbPacket& packet) const {
  const auto& info = packet.info();
  const auto& service = qp.service();
  if (info.service != service.packets || !(info.request ? service.responds : service.requests)) {
    return false;
  }
  if (qp.state() == QpState::kReset) return false;
  if (service.connected && !addresses.is_from_peer(qp.attributes_.path, packet.address)) {
    return false;
  }
  // IBTA 9.6.1: management packets may be of any partition of the port.
  if (packet.bth.dest_qp == wire::kGsiQpn) return has_pkey_for(packet.bth.pkey);
  return qp.takes(packet.bth.pkey);
}

inline void Engine::deliver(QueuePair& qp, const wire::Frame& arrived,
                            const wire::IbPacket& packet) {
  if (!admits(qp, packet)) return refuse(qp, packet);
  if (packet.info().request) {
    qp.responder_->handle_request(packet, arrived);
  } else {
    qp.requester_->handle_answer(packet, arrived);
    if (wants_rings_) qp.requester_->queue().window().give_back();
  }
}

/// Delivers a packet, or all packets of a train.
inline void Engine::deliver_all(QueuePair& qp, const wire::Frame& arrived,
                                const wire::IbPacket& packet) {
  if (arrived.packets() == 1) return deliver(qp, arrived, packet);
  deliver_train(qp, arrived, packet);
}

/// The QP of the frame if its headers match the cached ones of that QP. Null if the slow path must
/// parse them.
inline QueuePair* Engine::find_by_header(const wire::Frame& arrived) const {
  if (!arrived.has_values()) return nullptr;
  auto* qp = qps.find(arrived.headers()->bth.dest_qp);
  if (qp == nullptr || qp->seen_generation_ != addresses.generation()) return nullptr;
  return qp->seen_.matches(arrived) ? qp : nullptr;
}

/// Fast path for the common packets of a QP's peer. False if the slow path must handle it.
[[gnu::always_inline]] inline bool Engine::take_at_once(QueuePair& qp,
                                                        const wire::TransportHeaders& headers,
                                                        const wire::Frame& arrived) {
  if (headers.bth.opcode == wire::Opcode::RC_RDMA_WRITE_ONLY) {
    return qp.responder_->take_write(headers, arrived);
  }
  switch (headers.bth.opcode) {
    case wire::Opcode::RC_ACKNOWLEDGE: {
      const bool taken = qp.requester_->take_acknowledgement(headers);
      if (taken && wants_rings_) qp.requester_->queue().window().give_back();
      return taken;
    }
    case wire::Opcode::RC_SEND_ONLY:
      return qp.responder_->take_send(headers, arrived);
    case wire::Opcode::RC_RDMA_READ_REQUEST:
      return qp.responder_->take_read(headers, arrived);
    case wire::Opcode::RC_RDMA_READ_RESPONSE_ONLY: {
      const bool taken = qp.requester_->take_read_response(headers, arrived);
      if (taken && wants_rings_) qp.requester_->queue().window().give_back();
      return taken;
    }
    case wire::Opcode::UD_SEND_ONLY:
      return qp.responder_->take_datagram(headers, arrived, qp.seen_);
    default:
      return false;
  }
}

bool Engine::handle_frame(const wire::Frame& arrived, Time time) {
  now = time;
  auto* const qp = find_by_header(arrived);
  if (qp == nullptr) return handle_stranger(arrived);
  counters.rx_packets += arrived.packets();
  counters.rx_bytes += arrived.size_of_all();
  if (take_at_once(*qp, *arrived.headers(), arrived)) return true;
  deliver_all(*qp, arrived, qp->seen_.packet(arrived));
  return true;
}

/// Caches headers: later packets with the same ones need no check of source and destination.
void Engine::remember_header(QueuePair& qp, const wire::Frame& arrived,
                             const wire::IbPacket& packet) {
  // The GSI QP is found under QPN 1, not under its own number.
  if (packet.bth.dest_qp != qp.qpn() || packet.bth.dest_qp == wire::kGsiQpn) return;
  // Packets with a congestion mark always take the slow path.
  if (wire::TrafficClass{packet.address.traffic_class}.met_congestion()) return;
  if (qp.service().connected && !addresses.is_from_peer(qp.attributes_.path, packet.address)) {
    return;
  }
  qp.seen_.remember(arrived, packet);
  qp.seen_generation_ = addresses.generation();
  qp.responder_->remember_source(packet);
}

bool Engine::handle_stranger(const wire::Frame& arrived) {
  if (arrived.link() != addresses.link()) return false;
  auto parsed = wire::IbPacket::parse(arrived);
  if (!parsed) {
    if (parsed.error() == wire::PacketError::kOther) return false;
    if (parsed.error() == wire::PacketError::kIcrc) {
      drop(nullptr, Drop::kIcrc, Reason::kWrongIcrc);
      return true;
    }
    // UDP port 4791 is not reserved: a packet that is no RoCE may be another program's datagram.
    drop(nullptr, Drop::kMalformed, Reason::kMalformedPacket, to_string(parsed.error()));
    return false;
  }
  auto& packet = *parsed;
  if (packet.bth.dest_qp == wire::kMulticastQpn) return handle_multicast(arrived, packet);
  const auto qpn = packet.bth.dest_qp == wire::kGsiQpn && gsi ? *gsi : packet.bth.dest_qp;
  auto* qp = qps.find(qpn);
  const auto& path = qp != nullptr ? qp->attributes_.path : kAnyPath;
  if (!addresses.is_ours(path, packet.address)) return false;
  counters.rx_packets += arrived.packets();
  counters.rx_bytes += arrived.size_of_all();
  if (qp != nullptr) {
    remember_header(*qp, arrived, packet);
    if (wire::TrafficClass{packet.address.traffic_class}.met_congestion()) notice_mark(*qp, packet);
    deliver_all(*qp, arrived, packet);
  } else if (auto* target = dc_targets.find(qpn); target != nullptr) {
    auto* connection = dc_targets.connection_for(*target, packet);
    if (connection != nullptr) {
      if (wire::TrafficClass{packet.address.traffic_class}.met_congestion())
        notice_mark(*connection, packet);
      deliver_all(*connection, arrived, packet);
    }
  } else {
    drop(nullptr, Drop::kNoQp, Reason::kUnknownQpn, {}, arrived.packets());
  }
  return true;
}

/// Delivers the packets of a train in order, and runs of Middles together where possible.
void Engine::deliver_train(QueuePair& qp, const wire::Frame& arrived, const wire::IbPacket& first) {
  auto packet = first;
  for (unsigned left = arrived.packets(); left != 0;) {
    auto done = deliver_middles(qp, arrived, packet, left);
    if (done == 0) {
      deliver(qp, arrived, packet);
      done = 1;
    }
    left -= done;
    if (left != 0) wire::advance(packet, arrived, done, left);
  }
}

/// Delivers the last `count` packets of a train together. Returns `count`, or 0 if that is not
/// possible.
unsigned Engine::deliver_middles(QueuePair& qp, const wire::Frame& arrived,
                                 const wire::IbPacket& packet, unsigned count) {
  if (count == 1 || !packet.info().middle() || !admits(qp, packet)) return 0;
  return packet.info().request ? qp.responder_->handle_middles(packet, arrived, count)
                               : qp.requester_->handle_middles(packet, arrived, count);
}

bool Engine::handle_multicast(const wire::Frame& arrived, const wire::IbPacket& packet) {
  bool is_ours = false;
  std::int64_t copies = 0;
  const auto copy = kStepWork + static_cast<std::int64_t>(arrived.size() / kBytesPerUnit);
  for (const auto qpn : groups.members(packet.address.destination_gid)) {
    auto* qp = qps.find(qpn);
    assert(qp != nullptr && "a QP that goes leaves its groups");
    const auto& path = qp->attributes_.path;
    if (!addresses.is_multicast_for(path, packet.address)) continue;
    is_ours = true;
    const bool blocked =
        qp->options().block_multicast_loopback && addresses.is_from_here(path, packet.address);
    if (!qp->service().datagram || blocked) continue;
    // Over its work budget: drop the copy, as a NIC with a full buffer does.
    if (keys.work().over_budget()) {
      drop(qp, Drop::kResources, Reason::kTooManyCopies);
      continue;
    }
    deliver(*qp, arrived, packet);
    ++copies;
  }
  if (!is_ours) return false;
  // The sender has paid for one copy.
  if (copies > 1) keys.work().charge((copies - 1) * copy);
  ++counters.rx_packets;
  ++counters.rx_multicast_packets;
  counters.rx_bytes += arrived.size();
  return true;
}

/// Counts a packet that admits() rejected, with the reason.
[[gnu::noinline]] void Engine::refuse(QueuePair& qp, const wire::IbPacket& packet) {
  const auto& info = packet.info();
  const auto& service = qp.service();
  if (info.service != service.packets || !(info.request ? service.responds : service.requests)) {
    if (info.service == wire::Service::CNP_CLASS) return handle_cnp(qp, packet);
    return drop(&qp, Drop::kService, Reason::kOtherService, info.name);
  }
  if (qp.state() == QpState::kReset) {
    return drop(&qp, Drop::kQpState, Reason::kQpInReset, info.name);
  }
  if (service.connected && !addresses.is_from_peer(qp.attributes_.path, packet.address)) {
    return drop(&qp, Drop::kSource, Reason::kNotFromPeer);
  }
  return drop(&qp, Drop::kPkey, Reason::kWrongPkey);
}

// Running due work -------------------------------------------------------------------------------

[[gnu::always_inline]] inline unsigned Engine::serve(QueuePair& qp, unsigned quota) {
  // The common case first: a QP in RTS, which only responds and sends.
  unsigned used = 0;
  if (qp.state_ == QpState::kRts) used += qp.responder_->answer(quota);
  if (qp.state_ == QpState::kRts && goes_on(used, quota)) used += qp.requester_->send(quota - used);
  if (qp.state_ != QpState::kRts && goes_on(used, quota))
    used += serve_in_any_state(qp, quota - used);
  if (wants_rings_) qp.requester_->queue().window().give_back();
  return used;
}

unsigned Engine::serve_plain(QueuePair& qp, unsigned quota) { return serve(qp, quota); }

Time Engine::run_due(util::WorkBudget& work) {
  const auto allowed = work.left();
  auto left = timers.due(now) ? expire_timers(allowed) : allowed;
  if (!unreleased.empty()) take_released();
  const auto sent = counters.tx_bytes;
  while (auto* qp = ready.pop_front()) {
    const auto quota = left >= kQuantum * kStepWork ? kQuantum : steps_for(left);
    const auto used = congestion.active() ? serve_slow(*qp, quota) : serve(*qp, quota);
    bool more = used == quota;
    left -= std::max(1u, used) * kStepWork;
    if (keys.work().any()) {
      more = more || keys.work().over_budget();
      left -= keys.work().drain();
    }
    if (more) mark_ready(*qp);  // at the end of the queue
    if (left <= 0) break;
  }
  const auto bytes = counters.tx_bytes - sent;
  work.charge(allowed - left + static_cast<std::int64_t>(bytes / kBytesPerUnit));
  return ready.empty() && unreleased.empty() ? std::max(timers.next(), now) : now;
}

void Engine::wait_for_release(QueuePair& qp, std::uint64_t number) {
  qp.awaited_frame_ = number;
  unreleased.push_back(qp);
}

/// The fabric releases frames in the order of their numbers, and QPs are queued in nearly that
/// order. A QP that was queued again for a later frame may hold up those behind it for a while.
void Engine::take_released() {
  while (auto* qp = unreleased.front()) {
    if (!released(qp->awaited_frame_)) return;
    unreleased.pop_front();
    mark_ready(*qp);
  }
}

/// Returns the remaining work.
std::int64_t Engine::expire_timers(std::int64_t left) {
  while (auto* qp = timers.expired(now, left)) {
    expire(*qp);
    left -= kStepWork;
  }
  return left;
}

void Engine::expire(QueuePair& qp) {
  if (qp.timers_[Timer::kAck] <= now) qp.requester_->handle_ack_timeout();
  if (qp.timers_[Timer::kRnr] <= now) qp.requester_->handle_rnr_timeout();
}

/// The turn of a QP outside RTS. serve() has already done, or ruled out, the work of RTS.
[[gnu::noinline]] unsigned Engine::serve_in_any_state(QueuePair& qp, unsigned quota) {
  // Each step may change the state.
  unsigned used = 0;
  if (state_rules(qp.state_).receives) used += qp.responder_->answer(quota);
  if (goes_on(used, quota) && state_rules(qp.state_).finishes)
    used += qp.requester_->send(quota - used);
  if (goes_on(used, quota) && state_rules(qp.state_).flushes_send) {
    used += qp.requester_->queue().flush(quota - used);
  }
  // Flushed receives follow the completion of the send that took the QP to ERR.
  if (goes_on(used, quota) && state_rules(qp.state_).flushes_receive &&
      !qp.requester_->queue().waits_for_release()) {
    used += qp.responder_->flush(quota - used);
  }
  if (goes_on(used, quota)) report(qp);
  return used;
}

/// Raises the events for a drained QP and for the last WQE.
void Engine::report(QueuePair& qp) {
  if (qp.state_ == QpState::kSqDrain && qp.requester_->queue().window().idle() &&
      !qp.requester_->queue().drain_reported) {
    qp.requester_->queue().drain_reported = true;
    event(qp, QpEvent::kSqDrained, Reason::kDrained);
  }
  // The receive request that the QP took is flushed only when its sends are complete.
  if (qp.state_ == QpState::kError && qp.options_.uses_srq && !qp.last_wqe_reached_ &&
      !qp.requester_->queue().waits_for_release()) {
    qp.last_wqe_reached_ = true;
    event(qp, QpEvent::kLastWqeReached, Reason::kLastWqe);
  }
}

// Addresses --------------------------------------------------------------------------------------

const wire::IbHeader* Engine::make_path_header(QueuePair& qp) {
  wire::IbAddress address;
  const auto missing = addresses.make_address(qp.attributes_.path, address);
  if (missing != Reason::kNone) {
    note(qp, "packet not sent", missing);
    return nullptr;
  }
  qp.header_ = wire::IbHeader(address);
  qp.header_generation_ = addresses.generation();
  return &qp.header_;
}

// Inspection -------------------------------------------------------------------------------------

void Engine::event(QueuePair& qp, QpEvent what, Reason reason) {
  qp.queues_.handle_event(what, reason);
}

void Engine::drop(const QueuePair* qp, Drop counter, Reason why, std::string_view detail,
                  unsigned packets) {
  counters.dropped[static_cast<std::size_t>(counter)] += packets;
  if (!util::log_enabled(util::LogLevel::kDebug)) return;
  const auto& info = describe(why);
  notes.debug("packet for QP {:#x} dropped: {}{}{} ({}, reason {})",
              qp != nullptr ? qp->qpn().value() : 0, info.text, detail.empty() ? "" : ": ", detail,
              info.section, static_cast<unsigned>(why));
}

void Engine::note(const QueuePair& qp, std::string_view what, Reason why) {
  // The device has already logged the fault in its own words.
  if (is_of_device(why)) return;
  const auto& info = describe(why);
  notes.info("QP {:#x}: {}: {} ({}, reason {})", qp.qpn().value(), what, info.text, info.section,
             static_cast<unsigned>(why));
}

/// False if the fault is not a signature mismatch.
bool Engine::tell_signature_errors(QueuePair& qp, Reason fault, bool sends) {
  for (const auto& error : keys.signature_errors()) {
    qp.queues_.handle_signature_error(error, sends, sends ? XrcSrqn{} : qp.responder_->srqn());
  }
  keys.forget_signature_errors();
  return fault == Reason::kSignatureMismatch;
}

}  // namespace softhca::rdma
