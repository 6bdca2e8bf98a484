#include "connectx/steering/flow_match.h"

#include <cstring>

#include "wire/vlan.h"

namespace softhca::connectx {

namespace {

using ethernet::L3Type;
using ethernet::L4Type;
using ethernet::PacketInfo;
using Outer = spec::connectx::fte_match_set_lyr_2_4;
using Misc = spec::connectx::fte_match_set_misc;
using wire::EtherType;

void copy(std::span<std::byte> to, std::span<const std::byte> from) {
  std::memcpy(to.data(), from.data(), to.size());
}

void put_tags(MatchKey& key, const PacketInfo& packet) {
  if (!packet.tag) return;
  const auto outer = key.outer();
  if (packet.tag->tpid == EtherType::kVlan) outer.set(Outer::cvlan_tag, 1);
  if (packet.tag->tpid == EtherType::kServiceVlan) outer.set(Outer::svlan_tag, 1);
  const wire::Vlan first{packet.tag->tci};
  outer.set(Outer::first_prio, first.pcp());
  outer.set(Outer::first_cfi, first.dei());
  outer.set(Outer::first_vid, first.vid());
  if (!packet.inner_tag) return;
  const auto misc = key.misc();
  if (packet.inner_tag->tpid == EtherType::kVlan) misc.set(Misc::outer_second_cvlan_tag, 1);
  if (packet.inner_tag->tpid == EtherType::kServiceVlan) misc.set(Misc::outer_second_svlan_tag, 1);
  const wire::Vlan second{packet.inner_tag->tci};
  misc.set(Misc::outer_second_prio, second.pcp());
  misc.set(Misc::outer_second_cfi, second.dei());
  misc.set(Misc::outer_second_vid, second.vid());
}

void put_ip(MatchKey& key, const PacketInfo& packet) {
  if (packet.l3 == L3Type::kNone) return;
  const auto outer = key.outer();
  const bool v4 = packet.l3 == L3Type::kIpv4;
  outer.set(Outer::ip_version, v4 ? 4 : 6);
  outer.set(Outer::ip_protocol, static_cast<std::uint32_t>(packet.ip.protocol));
  outer.set(Outer::ip_dscp, packet.ip.traffic_class.dscp());
  outer.set(Outer::ip_ecn, packet.ip.traffic_class.ecn());
  outer.set(Outer::ttl_hoplimit, packet.ip.hop_limit);
  outer.set(Outer::frag, packet.ip.fragment ? 1 : 0);
  key.misc().set(Misc::outer_ipv6_flow_label, packet.ip.flow_label);
  // An IPv4 address is in the last four bytes, after zeros.
  const std::size_t skip = v4 ? 12 : 0;
  copy(outer.sub(Outer::src_ipv4_src_ipv6).subspan(skip),
       std::span(packet.ip.source.bytes).subspan(skip));
  copy(outer.sub(Outer::dst_ipv4_dst_ipv6).subspan(skip),
       std::span(packet.ip.destination.bytes).subspan(skip));
}

void put_ports(util::MutableView<Outer> outer, const PacketInfo& packet) {
  if (packet.l4 == L4Type::kTcp) {
    outer.set(Outer::tcp_sport, packet.source_port);
    outer.set(Outer::tcp_dport, packet.destination_port);
    outer.set(Outer::tcp_flags, packet.tcp_flags);
  }
  if (packet.l4 == L4Type::kUdp) {
    outer.set(Outer::udp_sport, packet.source_port);
    outer.set(Outer::udp_dport, packet.destination_port);
  }
}

MatchKey make_matchable_fields() {
  MatchKey mask;
  const auto outer = mask.outer();
  const auto misc = mask.misc();
  const auto ones = [](std::span<std::byte> bytes) {
    std::memset(bytes.data(), 0xFF, bytes.size());
  };
#define OUTER(capability, field) outer.set(Outer::field, Outer::field.kMax);
#define OUTER_BYTES(capability, field) ones(outer.sub(Outer::field));
#define MISC(capability, field) misc.set(Misc::field, Misc::field.kMax);
#include "connectx/base/match_field_list.inc"
  return mask;
}

}  // namespace

MatchKey match_key_of(const PacketInfo& packet) {
  MatchKey key;
  const auto outer = key.outer();
  copy(outer.sub(Outer::dmac), packet.destination_mac.bytes);
  copy(outer.sub(Outer::smac), packet.source_mac.bytes);
  outer.set(Outer::ethertype, static_cast<std::uint32_t>(packet.ether_type));
  put_tags(key, packet);
  put_ip(key, packet);
  put_ports(outer, packet);
  return key;
}

std::optional<MatchKey> without_priority_tag(const MatchKey& packet) {
  const util::View<Outer> outer(packet.bytes());
  const bool tagged = outer.get(Outer::cvlan_tag) != 0 || outer.get(Outer::svlan_tag) != 0;
  if (!tagged || outer.get(Outer::first_vid) != 0) return std::nullopt;
  auto key = packet;
  key.outer().set(Outer::cvlan_tag, 0);
  key.outer().set(Outer::svlan_tag, 0);
  return key;
}

bool compares_tag_and_vid(const MatchKey& criteria) {
  const util::View<Outer> outer(criteria.bytes());
  const bool tag = outer.get(Outer::cvlan_tag) != 0 || outer.get(Outer::svlan_tag) != 0;
  return tag && outer.get(Outer::first_vid) == Outer::first_vid.kMax;
}

bool compares_tcp_flags(const MatchKey& criteria) {
  return util::View<Outer>(criteria.bytes()).get(Outer::tcp_flags) != 0;
}

const MatchKey& matchable_fields() {
  static const MatchKey mask = make_matchable_fields();
  return mask;
}

}  // namespace softhca::connectx
