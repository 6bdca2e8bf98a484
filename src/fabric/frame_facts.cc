#include "fabric/frame_facts.h"

#include <array>

#include "wire/arp.h"
#include "wire/bth.h"
#include "wire/ethernet.h"
#include "wire/ib_packet.h"
#include "wire/icrc.h"
#include "wire/ipv4.h"
#include "wire/ipv6.h"
#include "wire/lrh.h"
#include "wire/vlan.h"

namespace softhca::fabric {
namespace {

using wire::EtherType;

/// Offset of the destination QP in a BTH (IBTA 9.2). Another bit might make it another error than a
/// wrong ICRC.
constexpr std::size_t kQpAt = 5;
constexpr std::size_t kQpBytes = 3;

void take_packet(FrameFacts& facts, const wire::IbPacket& packet) {
  const auto& address = packet.address;
  facts.kind = FrameKind::kRdma;
  facts.opcode = packet.bth.opcode;
  facts.dest_qp = packet.bth.dest_qp.value();
  facts.has_ip = address.encapsulation == wire::Encapsulation::kRoceV2;
  facts.network_offset = packet.network_offset;
  if (address.is_global()) {
    facts.source_gid = address.source_gid;
    facts.destination_gid = address.destination_gid;
  }
  const auto bth =
      packet.payload_offset - packet.info().headers_size - std::size_t{wire::BthLayout::kSize};
  facts.header = {bth + kQpAt, kQpBytes};
  facts.payload = {packet.payload_offset, packet.payload_size};
  facts.icrc = {packet.payload_offset + std::size_t{packet.payload_size} + packet.bth.pad_count,
                wire::kIcrcSize};
}

void take_arp(FrameFacts& facts, std::span<const std::byte> bytes) {
  facts.kind = FrameKind::kArp;
  if (bytes.size() < wire::ArpLayout::kSize) return;
  const auto arp = wire::Arp::parse(wire::ArpView(bytes));
  if (!arp) return;
  facts.source_gid = wire::Gid::from_ipv4(util::load_be32(arp->sender_ip.data()));
  facts.destination_gid = wire::Gid::from_ipv4(util::load_be32(arp->target_ip.data()));
}

/// Returns the bytes of the IP header; 0: there is none.
std::size_t take_ip(FrameFacts& facts, std::span<const std::byte> bytes, EtherType type) {
  if (type == EtherType::kIpv4 && bytes.size() >= wire::Ipv4Layout::kSize) {
    const wire::Ipv4View ip(bytes);
    facts.source_gid = wire::Gid::from_ipv4(ip.get(wire::Ipv4Layout::source));
    facts.destination_gid = wire::Gid::from_ipv4(ip.get(wire::Ipv4Layout::destination));
    return wire::Ipv4Layout::kSize;
  }
  if (type == EtherType::kIpv6 && bytes.size() >= wire::Ipv6Layout::kSize) {
    const wire::Ipv6View ip(bytes);
    facts.source_gid = wire::Gid::from(ip.get(wire::Ipv6Layout::source));
    facts.destination_gid = wire::Gid::from(ip.get(wire::Ipv6Layout::destination));
    return wire::Ipv6Layout::kSize;
  }
  return 0;
}

/// A frame that is no packet of the transport, or a damaged one.
void take_ethernet(FrameFacts& facts, const wire::Frame& frame) {
  const auto head = frame.head();
  std::size_t offset = wire::EthernetLayout::kSize;
  if (head.size() < offset) return;
  auto type = EtherType(wire::EthernetView(head).get(wire::EthernetLayout::ether_type));
  if (type == EtherType::kVlan && head.size() >= offset + wire::VlanLayout::kSize) {
    type = wire::Vlan::parse(wire::VlanView(head.subspan(offset))).ether_type;
    offset += wire::VlanLayout::kSize;
  }
  std::size_t header = 0;
  if (type == EtherType::kArp) {
    std::array<std::byte, wire::ArpLayout::kSize> bytes{};
    if (frame.size() >= offset + bytes.size()) frame.copy_range(offset, bytes);
    take_arp(facts, bytes);
    header = bytes.size();
  } else {
    header = take_ip(facts, head.subspan(offset), type);
    facts.has_ip = header != 0;
    if (facts.has_ip) facts.kind = FrameKind::kIp;
    facts.network_offset = offset;
  }
  const auto after = std::min(offset + header, frame.size());
  facts.header = {offset, after - offset};
  facts.payload = {after, frame.size() - after};
}

void take_link(FrameFacts& facts, const wire::Frame& frame) {
  const auto head = frame.link_header();
  if (frame.link() == wire::Link::kEthernet) {
    if (head.size() < wire::EthernetLayout::kSize) return;
    const auto ethernet = wire::Ethernet::parse(wire::EthernetView(head));
    facts.source_mac = ethernet.source;
    facts.destination_mac = ethernet.destination;
  } else if (head.size() >= wire::LrhLayout::kSize) {
    const auto lrh = wire::Lrh::parse(wire::LrhView(head));
    facts.source_lid = lrh.slid;
    facts.destination_lid = lrh.dlid;
  }
}

bool is_address(const FrameAddress& wanted, const std::optional<wire::MacAddress>& mac,
                const std::optional<wire::Gid>& gid, const std::optional<wire::Lid>& lid) {
  if (const auto* one = std::get_if<wire::MacAddress>(&wanted)) return mac == *one;
  if (const auto* one = std::get_if<wire::Gid>(&wanted)) return gid == *one;
  return lid == std::get<wire::Lid>(wanted);
}

}  // namespace

FrameFacts FrameFacts::of(const wire::Frame& frame) {
  FrameFacts facts;
  take_link(facts, frame);
  if (const auto packet = wire::IbPacket::parse(frame)) {
    take_packet(facts, *packet);
  } else if (frame.link() == wire::Link::kEthernet) {
    take_ethernet(facts, frame);
  }
  return facts;
}

bool matches(const FaultRule& rule, const FrameFacts& facts) {
  const bool is_packet = facts.kind == FrameKind::kRdma;
  if (rule.kind && *rule.kind != facts.kind) return false;
  if (rule.qp && (!is_packet || *rule.qp != facts.dest_qp)) return false;
  if (!rule.opcode.empty() &&
      (!is_packet || !rule.opcodes[static_cast<std::uint8_t>(facts.opcode)])) {
    return false;
  }
  if (rule.from && !is_address(*rule.from, facts.source_mac, facts.source_gid, facts.source_lid)) {
    return false;
  }
  return !rule.to ||
         is_address(*rule.to, facts.destination_mac, facts.destination_gid, facts.destination_lid);
}

}  // namespace softhca::fabric
