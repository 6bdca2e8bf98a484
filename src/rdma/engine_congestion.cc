// Congestion handling of a port (IBTA Annex A17 17.9.3): marked packets cause notifications (CNPs),
// and CNPs slow QPs down.

#include <algorithm>
#include <array>
#include <utility>

#include "rdma/engine.h"
#include "rdma/requester.h"
#include "rdma/responder.h"
#include "wire/traffic_class.h"
#include "wire/vlan.h"

namespace softhca::rdma {

namespace {

/// Packets that a rate-limited QP sends before its rate is checked again.
constexpr unsigned kSlowQuantum = 4;

unsigned priority_of(const wire::IbAddress& address) {
  return address.vlan_tci ? wire::Vlan{*address.vlan_tci, {}}.pcp() : 0u;
}

}  // namespace

/// A router has marked a packet to the QP: sends a CNP to the packet's sender, if one is due.
[[gnu::noinline]] void Engine::notice_mark(const QueuePair& qp, const wire::IbPacket& packet) {
  if (packet.address.encapsulation != wire::Encapsulation::kRoceV2 ||
      packet.info().service == wire::Service::CNP_CLASS) {
    return;
  }
  const auto priority = priority_of(packet.address);
  if (!congestion.handle_mark(priority, now)) return;
  const auto& how = congestion.notification;
  // Reverse the packet's path: for a datagram no other is known.
  auto address = packet.address;
  std::swap(address.source_mac, address.destination_mac);
  std::swap(address.source_gid, address.destination_gid);
  // ECT(0), as the card sets it.
  constexpr std::uint8_t kEct0 = 2;
  address.traffic_class = wire::TrafficClass::make(how.cnp_dscp, kEct0).value;
  address.hop_limit = Path{}.hop_limit;
  if (address.vlan_tci) {
    const auto vid = wire::Vlan{*address.vlan_tci, {}}.vid();
    const auto pcp = how.cnp_prio_mode ? static_cast<std::uint8_t>(priority) : how.cnp_802p_prio;
    address.vlan_tci = wire::Vlan::make_tci(vid, pcp);
  }
  // "16 bytes, reserved": zeros (IBTA Annex A17 17.9.3).
  static constexpr std::array<std::byte, 16> kPayload{};
  auto& frame = new_frame();
  auto& headers = wire::IbHeader(address).begin(wire::Opcode::CNP, kPayload.size(), frame);
  headers.bth.dest_qp = qp.service().datagram ? packet.ext.deth.src_qp : qp.attributes_.remote_qpn;
  headers.bth.pkey = packet.bth.pkey;
  headers.bth.becn = true;
  if (frame.add_segment(kPayload)) transmit(frame);
}

[[gnu::noinline]] void Engine::handle_cnp(QueuePair& qp, const wire::IbPacket& packet) {
  if (qp.state_ != QpState::kRts && qp.state_ != QpState::kSqDrain) return;
  const auto& path = qp.attributes_.path;
  if (qp.service().connected && !addresses.is_from_peer(path, packet.address)) {
    return drop(&qp, Drop::kSource, Reason::kNotFromPeer);
  }
  congestion.handle_cnp(
      qp, qp.service().connected ? path.vlan_priority & wire::VlanLayout::pcp.kMax : 0u, now);
}

/// Serves a QP while any QP, perhaps this one, is rate-limited.
[[gnu::noinline]] unsigned Engine::serve_slow(QueuePair& qp, unsigned quota) {
  congestion.sweep(now);
  if (qp.flow_ == 0) return serve_plain(qp, quota);
  // Responses first, as they are not rate-limited. They end a turn over its budget.
  const auto answered = state_rules(qp.state_).receives ? qp.responder_->answer(quota) : 0;
  if (answered == quota || keys.work().over_budget()) return answered;
  const auto before = counters.tx_bytes;
  const auto steps = std::min(quota - answered, kSlowQuantum);
  const auto used = serve_plain(qp, steps);
  const auto next = congestion.charge(qp, counters.tx_bytes - before, now);
  if (next > now) {
    qp.requester_->wait_for_rate(next);
  } else if (used == steps) {
    mark_ready(qp);
  }
  return answered + used;
}

}  // namespace softhca::rdma
