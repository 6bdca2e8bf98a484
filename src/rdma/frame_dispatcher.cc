#include "rdma/frame_dispatcher.h"

#include <cassert>

#include "rdma/cnp.h"
#include "rdma/requester.h"
#include "rdma/responder.h"
#include "wire/traffic_class.h"
#include "wire/train.h"

namespace softhca::rdma {

namespace {

/// The path for packets to an unknown QP: every address of the port matches.
const Path kAnyPath{};

}  // namespace

/// True if this QP may take the packet in its current state.
inline bool FrameDispatcher::admits(const Engine& engine, const QueuePair& qp,
                                    const wire::IbPacket& packet) {
  const auto& info = packet.info();
  const auto& service = qp.service();
  if (info.service != service.packets || !(info.request ? service.responds : service.requests)) {
    return false;
  }
  if (qp.state() == QpState::kReset) return false;
  if (service.connected && !engine.addresses.is_from_peer(qp.attributes_.path, packet.address)) {
    return false;
  }
  // IBTA 9.6.1: management packets may be of any partition of the port.
  if (packet.bth.dest_qp == wire::kGsiQpn) return engine.pkeys.has_match(packet.bth.pkey);
  return qp.takes(packet.bth.pkey);
}

inline void FrameDispatcher::deliver(Engine& engine, QueuePair& qp, const wire::Frame& arrived,
                                     const wire::IbPacket& packet) {
  if (!admits(engine, qp, packet)) return refuse(engine, qp, packet);
  if (packet.info().request) {
    qp.responder_->handle_request(packet, arrived);
  } else {
    qp.requester_->handle_answer(packet, arrived);
    if (engine.rings.scarce()) qp.requester_->queue().window().give_back();
  }
}

/// Delivers a packet, or all packets of a train.
inline void FrameDispatcher::deliver_all(Engine& engine, QueuePair& qp, const wire::Frame& arrived,
                                         const wire::IbPacket& packet) {
  if (arrived.packets() == 1) return deliver(engine, qp, arrived, packet);
  deliver_train(engine, qp, arrived, packet);
}

/// The QP of the frame if its headers match the cached ones of that QP. Null if the slow path must
/// parse them.
inline QueuePair* FrameDispatcher::find_by_header(const Engine& engine,
                                                  const wire::Frame& arrived) {
  if (!arrived.has_values()) return nullptr;
  auto* qp = engine.qps.find(arrived.headers()->bth.dest_qp);
  if (qp == nullptr || qp->accepted_.generation != engine.addresses.generation()) return nullptr;
  return qp->accepted_.header.matches(arrived) ? qp : nullptr;
}

/// Fast path for the common packets of a QP's peer. False if the slow path must handle it.
[[gnu::always_inline]] inline bool FrameDispatcher::take_fast(const Engine& engine, QueuePair& qp,
                                                              const wire::TransportHeaders& headers,
                                                              const wire::Frame& arrived) {
  if (headers.bth.opcode == wire::Opcode::RC_RDMA_WRITE_ONLY) {
    return qp.responder_->handle_write_fast(headers, arrived);
  }
  switch (headers.bth.opcode) {
    case wire::Opcode::RC_ACKNOWLEDGE: {
      const bool taken = qp.requester_->handle_acknowledgement_fast(headers);
      if (taken && engine.rings.scarce()) qp.requester_->queue().window().give_back();
      return taken;
    }
    case wire::Opcode::RC_SEND_ONLY:
      return qp.responder_->handle_send_fast(headers, arrived);
    case wire::Opcode::RC_RDMA_READ_REQUEST:
      return qp.responder_->handle_read_fast(headers, arrived);
    case wire::Opcode::RC_RDMA_READ_RESPONSE_ONLY: {
      const bool taken = qp.requester_->handle_read_response_fast(headers, arrived);
      if (taken && engine.rings.scarce()) qp.requester_->queue().window().give_back();
      return taken;
    }
    case wire::Opcode::UD_SEND_ONLY:
      return qp.responder_->handle_datagram_fast(headers, arrived, qp.accepted_.header);
    default:
      return false;
  }
}

bool FrameDispatcher::handle_frame(const wire::Frame& arrived, util::Time now) {
  auto& engine = engine_;
  engine.now = now;
  auto* const qp = find_by_header(engine, arrived);
  if (qp == nullptr) return handle_uncached(arrived);
  engine.counters.rx_packets += arrived.packets();
  engine.counters.rx_bytes += arrived.size_of_all();
  if (take_fast(engine, *qp, *arrived.headers(), arrived)) return true;
  deliver_all(engine, *qp, arrived, qp->accepted_.header.packet(arrived));
  return true;
}

/// Caches headers: later packets with the same ones need no check of source and destination.
void FrameDispatcher::remember_header(QueuePair& qp, const wire::Frame& arrived,
                                      const wire::IbPacket& packet) {
  // The GSI QP is found under QPN 1, not under its own number.
  if (packet.bth.dest_qp != qp.qpn() || packet.bth.dest_qp == wire::kGsiQpn) return;
  // Packets with a congestion mark always take the slow path.
  if (wire::TrafficClass{packet.address.traffic_class}.met_congestion()) return;
  if (qp.service().connected &&
      !engine_.addresses.is_from_peer(qp.attributes_.path, packet.address)) {
    return;
  }
  qp.accepted_.header.remember(arrived, packet);
  qp.accepted_.generation = engine_.addresses.generation();
  qp.responder_->remember_source(packet);
}

bool FrameDispatcher::handle_uncached(const wire::Frame& arrived) {
  if (arrived.link() != engine_.addresses.link()) return false;
  auto parsed = wire::IbPacket::parse(arrived);
  if (!parsed) {
    if (parsed.error() == wire::PacketError::kOther) return false;
    if (parsed.error() == wire::PacketError::kIcrc) {
      engine_.drop(nullptr, Drop::kIcrc, Reason::kWrongIcrc);
      return true;
    }
    // UDP port 4791 is not reserved: a packet that is no RoCE may be another program's datagram.
    engine_.drop(nullptr, Drop::kMalformed, Reason::kMalformedPacket, to_string(parsed.error()));
    return false;
  }
  auto& packet = *parsed;
  if (packet.bth.dest_qp == wire::kMulticastQpn) return handle_multicast(arrived, packet);
  const auto qpn =
      packet.bth.dest_qp == wire::kGsiQpn && engine_.gsi ? *engine_.gsi : packet.bth.dest_qp;
  auto* qp = engine_.qps.find(qpn);
  const auto& path = qp != nullptr ? qp->attributes_.path : kAnyPath;
  if (!engine_.addresses.is_ours(path, packet.address)) return false;
  engine_.counters.rx_packets += arrived.packets();
  engine_.counters.rx_bytes += arrived.size_of_all();
  if (qp != nullptr) {
    remember_header(*qp, arrived, packet);
    if (wire::TrafficClass{packet.address.traffic_class}.met_congestion())
      notice_mark(engine_, *qp, packet);
    deliver_all(engine_, *qp, arrived, packet);
  } else if (auto* target = engine_.dc_targets.find(qpn); target != nullptr) {
    auto* connection = engine_.dc_targets.connection_for(*target, packet);
    if (connection != nullptr) {
      if (wire::TrafficClass{packet.address.traffic_class}.met_congestion())
        notice_mark(engine_, *connection, packet);
      deliver_all(engine_, *connection, arrived, packet);
    }
  } else {
    engine_.drop(nullptr, Drop::kNoQp, Reason::kUnknownQpn, {}, arrived.packets());
  }
  return true;
}

/// Delivers the packets of a train in order, and runs of Middles together where possible.
void FrameDispatcher::deliver_train(Engine& engine, QueuePair& qp, const wire::Frame& arrived,
                                    const wire::IbPacket& first) {
  auto packet = first;
  for (unsigned left = arrived.packets(); left != 0;) {
    auto done = deliver_middles(engine, qp, arrived, packet, left);
    if (done == 0) {
      deliver(engine, qp, arrived, packet);
      done = 1;
    }
    left -= done;
    if (left != 0) wire::advance(packet, arrived, done, left);
  }
}

/// Delivers the last `count` packets of a train together. Returns `count`, or 0 if that is not
/// possible.
unsigned FrameDispatcher::deliver_middles(const Engine& engine, QueuePair& qp,
                                          const wire::Frame& arrived, const wire::IbPacket& packet,
                                          unsigned count) {
  if (count == 1 || !packet.info().middle() || !admits(engine, qp, packet)) return 0;
  return packet.info().request ? qp.responder_->handle_middles(packet, arrived, count)
                               : qp.requester_->handle_middles(packet, arrived, count);
}

bool FrameDispatcher::handle_multicast(const wire::Frame& arrived, const wire::IbPacket& packet) {
  bool is_ours = false;
  std::int64_t copies = 0;
  const auto copy =
      Engine::kStepWork + static_cast<std::int64_t>(arrived.size() / Engine::kBytesPerUnit);
  for (const auto qpn : groups_.members(packet.address.destination_gid)) {
    auto* qp = engine_.qps.find(qpn);
    assert(qp != nullptr && "a QP that goes leaves its groups");
    const auto& path = qp->attributes_.path;
    if (!engine_.addresses.is_multicast_for(path, packet.address)) continue;
    is_ours = true;
    const bool blocked = qp->options().block_multicast_loopback &&
                         engine_.addresses.is_from_here(path, packet.address);
    if (!qp->service().datagram || blocked) continue;
    // Over its work budget: drop the copy, as a NIC with a full buffer does.
    if (engine_.keys.work().over_budget()) {
      engine_.drop(qp, Drop::kResources, Reason::kTooManyCopies);
      continue;
    }
    deliver(engine_, *qp, arrived, packet);
    ++copies;
  }
  if (!is_ours) return false;
  // The sender has paid for one copy.
  if (copies > 1) engine_.keys.work().charge((copies - 1) * copy);
  ++engine_.counters.rx_packets;
  ++engine_.counters.rx_multicast_packets;
  engine_.counters.rx_bytes += arrived.size();
  return true;
}

/// Counts a packet that admits() rejected, with the reason.
[[gnu::noinline]] void FrameDispatcher::refuse(Engine& engine, QueuePair& qp,
                                               const wire::IbPacket& packet) {
  const auto& info = packet.info();
  const auto& service = qp.service();
  if (info.service != service.packets || !(info.request ? service.responds : service.requests)) {
    if (info.service == wire::Service::CNP_CLASS) return handle_cnp(engine, qp, packet);
    return engine.drop(&qp, Drop::kService, Reason::kOtherService, info.name);
  }
  if (qp.state() == QpState::kReset) {
    return engine.drop(&qp, Drop::kQpState, Reason::kQpInReset, info.name);
  }
  if (service.connected && !engine.addresses.is_from_peer(qp.attributes_.path, packet.address)) {
    return engine.drop(&qp, Drop::kSource, Reason::kNotFromPeer);
  }
  return engine.drop(&qp, Drop::kPkey, Reason::kWrongPkey);
}

}  // namespace softhca::rdma
