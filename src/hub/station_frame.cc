#include "hub/station_frame.h"

#include "wire/arp.h"
#include "wire/bth.h"
#include "wire/ethernet.h"
#include "wire/grh.h"
#include "wire/ib_header.h"
#include "wire/ipv4.h"
#include "wire/ipv6.h"
#include "wire/neighbor_discovery.h"
#include "wire/udp.h"

namespace softhca::hub {
namespace {

using wire::EthernetLayout;
using FrameKind = StationFrame::Kind;

static_assert(StationFrame::kHeadMax == EthernetLayout::kSize + wire::Ipv6Layout::kSize +
                                            wire::UdpLayout::kSize + wire::BthLayout::kSize);

/// Makes it a packet whose BTH is at `begin`.
StationFrame packet_at(std::span<const std::byte> head, std::size_t begin, StationFrame found) {
  if (head.size() < begin + wire::BthLayout::kSize) return {};
  found.kind = FrameKind::kPacket;
  found.begin = begin;
  found.qpn = wire::Bth::parse(wire::BthView(head.subspan(begin))).dest_qp;
  return found;
}

/// The same behind the UDP header at `at`, of an IP packet with `size` bytes from there on.
StationFrame packet_in_udp(std::span<const std::byte> head, std::size_t at, std::size_t size,
                           StationFrame found) {
  using L = wire::UdpLayout;
  if (size < L::kSize || head.size() < at + L::kSize) return {};
  if (wire::UdpView(head.subspan(at)).get(L::destination_port) != wire::kRoceUdpPort) return {};
  found.size = size - L::kSize;
  return packet_at(head, at + L::kSize, found);
}

StationFrame parse_ipv4(std::span<const std::byte> head) {
  using L = wire::Ipv4Layout;
  constexpr auto kAt = EthernetLayout::kSize;
  constexpr std::uint32_t kWords = L::kSize / 4;
  if (head.size() < kAt + L::kSize) return {};
  const wire::Ipv4View ip(head.subspan(kAt));
  const std::size_t length = ip.get(L::total_length);
  const bool fits = ip.get(L::version) == 4 && ip.get(L::ihl) == kWords &&
                    ip.get(L::fragment_offset) == 0 && ip.get(L::more_fragments) == 0 &&
                    wire::IpProtocol(ip.get(L::protocol)) == wire::IpProtocol::kUdp;
  if (!fits || length < L::kSize) return {};
  StationFrame found;
  found.from = wire::Gid::from_ipv4(ip.get(L::source));
  found.to = wire::Gid::from_ipv4(ip.get(L::destination));
  return packet_in_udp(head, kAt + L::kSize, length - L::kSize, found);
}

StationFrame parse_ipv6(std::span<const std::byte> head) {
  using L = wire::Ipv6Layout;
  constexpr auto kAt = EthernetLayout::kSize;
  constexpr auto kBehind = kAt + L::kSize;
  if (head.size() <= kBehind) return {};
  const wire::Ipv6View ip(head.subspan(kAt));
  if (ip.get(L::version) != 6) return {};
  StationFrame found;
  if (wire::IpProtocol(ip.get(L::next_header)) == wire::IpProtocol::kIcmpv6) {
    const auto type = std::to_integer<std::uint8_t>(head[kBehind]);
    const bool is_neighbor =
        type == wire::Neighbor::kSolicitation || type == wire::Neighbor::kAdvertisement;
    if (is_neighbor) found.kind = FrameKind::kNeighbor;
    return found;
  }
  if (wire::IpProtocol(ip.get(L::next_header)) != wire::IpProtocol::kUdp) return {};
  found.from = wire::Gid::from(ip.get(L::source));
  found.to = wire::Gid::from(ip.get(L::destination));
  // A mapped address is that of an IPv4 header only (RFC 4038 4.2).
  if (found.from.is_ipv4() || found.to.is_ipv4()) return {};
  return packet_in_udp(head, kBehind, ip.get(L::payload_length), found);
}

StationFrame parse_grh(std::span<const std::byte> head) {
  constexpr auto kAt = EthernetLayout::kSize;
  if (head.size() < kAt + wire::GrhLayout::kSize) return {};
  const auto grh = wire::Grh::parse(wire::GrhView(head.subspan(kAt)));
  if (!grh || grh->next_header != wire::Grh::kIbaTransport) return {};
  StationFrame found;
  found.from = grh->sgid;
  found.to = grh->dgid;
  found.size = grh->payload_length;
  return packet_at(head, kAt + wire::GrhLayout::kSize, found);
}

}  // namespace

StationFrame StationFrame::parse(std::span<const std::byte> head) {
  if (head.size() < EthernetLayout::kSize) return {};
  switch (wire::Ethernet::parse(wire::EthernetView(head)).ether_type) {
    case wire::EtherType::kArp: {
      StationFrame found;
      found.kind = FrameKind::kNeighbor;
      return found;
    }
    case wire::EtherType::kIpv4:
      return parse_ipv4(head);
    case wire::EtherType::kIpv6:
      return parse_ipv6(head);
    case wire::EtherType::kRoceV1:
      return parse_grh(head);
    default:
      return {};
  }
}

}  // namespace softhca::hub
