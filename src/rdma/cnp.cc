#include "rdma/cnp.h"

#include <array>
#include <utility>

#include "wire/traffic_class.h"
#include "wire/vlan.h"

namespace softhca::rdma {

namespace {

unsigned priority_of(const wire::IbAddress& address) {
  return address.vlan_tci ? wire::Vlan{*address.vlan_tci, {}}.pcp() : 0u;
}

}  // namespace

[[gnu::noinline]] void notice_mark(Engine& engine, const QueuePair& qp,
                                   const wire::IbPacket& packet) {
  if (packet.address.encapsulation != wire::Encapsulation::kRoceV2 ||
      packet.info().service == wire::Service::CNP_CLASS) {
    return;
  }
  const auto priority = priority_of(packet.address);
  if (!engine.congestion.handle_mark(priority, engine.now)) return;
  const auto& how = engine.congestion.notification;
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
  auto& frame = engine.new_frame();
  auto& headers = wire::IbHeader(address).begin(wire::Opcode::CNP, kPayload.size(), frame);
  headers.bth.dest_qp = qp.service().datagram ? packet.ext.deth.src_qp : qp.attributes().remote_qpn;
  headers.bth.pkey = packet.bth.pkey;
  headers.bth.becn = true;
  if (frame.add_segment(kPayload)) engine.transmit(frame);
}

[[gnu::noinline]] void handle_cnp(Engine& engine, QueuePair& qp, const wire::IbPacket& packet) {
  if (qp.state() != QpState::kRts && qp.state() != QpState::kSqDrain) return;
  const auto& path = qp.attributes().path;
  if (qp.service().connected && !engine.addresses.is_from_peer(path, packet.address)) {
    return engine.drop(&qp, Drop::kSource, Reason::kNotFromPeer);
  }
  engine.congestion.handle_cnp(
      qp, qp.service().connected ? path.vlan_priority & wire::VlanLayout::pcp.kMax : 0u,
      engine.now);
}

}  // namespace softhca::rdma
