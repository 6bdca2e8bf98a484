#include "hub/neighbours.h"

#include <algorithm>

namespace softhca::hub {

using wire::Arp;
using wire::ArpLayout;
using wire::EthernetLayout;
using wire::EtherType;
using wire::Ipv6Layout;
using wire::MacAddress;
using wire::Neighbor;
using wire::NeighborLayout;

namespace {

constexpr std::size_t kArpSize = EthernetLayout::kSize + ArpLayout::kSize;
constexpr std::size_t kIpv6Size = EthernetLayout::kSize + Ipv6Layout::kSize;
constexpr std::size_t kNeighborSize = kIpv6Size + NeighborLayout::kSize;

wire::Gid gid_of(const Arp::Ipv4Address& address) {
  return wire::Gid::from_ipv4(util::load_be32(address.data()));
}

Arp::Ipv4Address ipv4_of(const wire::Gid& gid) {
  Arp::Ipv4Address address;
  std::ranges::copy(std::span(gid.bytes).last<4>(), address.begin());
  return address;
}

/// The all-nodes group (RFC 4291 2.7.1).
wire::Gid all_nodes() {
  wire::Gid group;
  group.bytes[0] = std::byte{0xff};
  group.bytes[1] = std::byte{0x02};
  group.bytes[15] = std::byte{0x01};
  return group;
}

}  // namespace

std::optional<MacAddress> Neighbours::find(const Address& address) const {
  const auto at = known_.find(address);
  return at == known_.end() ? std::nullopt : std::optional(at->second);
}

bool Neighbours::is_own(const Address& address) const {
  return std::ranges::find(own_, address) != own_.end();
}

const Neighbours::Address* Neighbours::own_of_kind(bool ipv4) const {
  const auto at = std::ranges::find(own_, ipv4, &Address::is_ipv4);
  return at == own_.end() ? nullptr : &*at;
}

void Neighbours::ask(const Address& address) {
  const auto* const own = own_of_kind(address.is_ipv4());
  if (own == nullptr) return;
  if (address.is_ipv4()) {
    return send(MacAddress::broadcast(), {.operation = Arp::kRequest,
                                          .sender_mac = mac_of(*own),
                                          .sender_ip = ipv4_of(*own),
                                          .target_mac = {},
                                          .target_ip = ipv4_of(address)});
  }
  const auto group = Neighbor::solicited_node(address);
  send(Neighbor::group_mac(group), *own, group,
       {.type = Neighbor::kSolicitation, .target = address, .mac = mac_of(*own)});
}

void Neighbours::announce(const Address& address) {
  if (address.is_ipv4()) {
    return send(MacAddress::broadcast(), {.operation = Arp::kRequest,
                                          .sender_mac = mac_of(address),
                                          .sender_ip = ipv4_of(address),
                                          .target_mac = {},
                                          .target_ip = ipv4_of(address)});
  }
  send(Neighbor::group_mac(all_nodes()), address, all_nodes(),
       {.type = Neighbor::kAdvertisement, .target = address, .mac = mac_of(address)});
}

void Neighbours::arrive(const wire::Frame& frame, fabric::Receiver& to) {
  const auto header = frame.link_header();
  // A frame with decoded headers is a transport packet.
  if (header.size() == EthernetLayout::kSize && frame.headers() == nullptr) {
    const auto type = EtherType(wire::EthernetView(header).get(EthernetLayout::ether_type));
    if (type == EtherType::kArp) return handle_arp(frame);
    if (type == EtherType::kIpv6 && handle_ipv6(frame)) return;
  }
  to.handle_frame(frame);
}

/// RFC 826 "Packet Reception". Any station may have sent it, so whatever does not fit is ignored.
void Neighbours::handle_arp(const wire::Frame& frame) {
  if (frame.size() < kArpSize) return;
  std::array<std::byte, ArpLayout::kSize> bytes;
  frame.copy_range(EthernetLayout::kSize, bytes);
  const auto arp = Arp::parse(wire::ArpView(bytes));
  if (!arp || arp->sender_mac.is_multicast() || is_own(gid_of(arp->sender_ip))) return;
  const auto sender = gid_of(arp->sender_ip);
  const bool for_us = is_own(gid_of(arp->target_ip));
  // A known address may have moved. A new one is learned only from a message to this station.
  if (for_us || known_.contains(sender)) learn(sender, arp->sender_mac);
  if (!for_us || arp->operation != Arp::kRequest) return;
  send(arp->sender_mac, {.operation = Arp::kReply,
                         .sender_mac = mac_of(gid_of(arp->target_ip)),
                         .sender_ip = arp->target_ip,
                         .target_mac = arp->sender_mac,
                         .target_ip = arp->sender_ip});
}

bool Neighbours::handle_ipv6(const wire::Frame& frame) {
  if (frame.size() < kNeighborSize) return false;
  std::array<std::byte, kNeighborSize - EthernetLayout::kSize> bytes;
  frame.copy_range(EthernetLayout::kSize, bytes);
  const auto ip = wire::Ipv6::parse(wire::Ipv6View(std::span(bytes).first<Ipv6Layout::kSize>()));
  if (!ip || ip->next_header != wire::IpProtocol::kIcmpv6) return false;
  const auto rest = std::span(bytes).subspan<Ipv6Layout::kSize>();
  const auto message = Neighbor::parse(wire::NeighborView(rest));
  if (!message) return false;
  // Accepts exactly one option, as Linux and this class send it. RFC 4861 7.1 lists what to ignore.
  if (ip->payload_length == NeighborLayout::kSize && ip->hop_limit == Neighbor::kHopLimit &&
      Neighbor::checksum(rest, ip->source, ip->destination) == 0) {
    handle_neighbor(*message, *ip);
  }
  return true;
}

/// RFC 4861 7.2.3 to 7.2.5.
void Neighbours::handle_neighbor(const Neighbor& message, const wire::Ipv6& ip) {
  if (message.mac.is_multicast()) return;
  if (message.type == Neighbor::kAdvertisement) {
    const bool answers_us = message.solicited && is_own(ip.destination);
    if (!is_own(message.target) && (answers_us || known_.contains(message.target))) {
      learn(message.target, message.mac);
    }
    return;
  }
  // Duplicate address detection: the sender has no address yet, so there is nothing to learn.
  if (!is_own(message.target) || ip.source.is_zero() || is_own(ip.source)) return;
  learn(ip.source, message.mac);
  send(message.mac, message.target, ip.source,
       {.type = Neighbor::kAdvertisement,
        .solicited = true,
        .target = message.target,
        .mac = mac_of(message.target)});
}

void Neighbours::learn(const Address& address, const MacAddress& mac) {
  // An ARP probe: the sender does not own the address yet (RFC 5227 1.1).
  if (address == wire::Gid::from_ipv4(0) || address.is_multicast()) return;
  if (known_.size() == kMax && !known_.contains(address)) known_.erase(known_.begin());
  known_[address] = mac;
}

void Neighbours::send(const MacAddress& to, const Arp& arp) {
  wire::Frame frame;
  const auto head = frame.resize_head(wire::Ethernet::kFrameMin);
  std::ranges::fill(head, std::byte{0});
  wire::Ethernet{.destination = to, .source = mac_, .ether_type = EtherType::kArp}.emit(
      util::MutableView<EthernetLayout>(head.first<EthernetLayout::kSize>()));
  arp.emit(util::MutableView<ArpLayout>(head.subspan(EthernetLayout::kSize)));
  below().transmit(frame);
}

void Neighbours::send(const MacAddress& to, const Address& from, const Address& destination,
                      const Neighbor& message) {
  wire::Frame frame;
  const auto head = frame.resize_head(kNeighborSize);
  std::ranges::fill(head, std::byte{0});
  wire::Ethernet{.destination = to, .source = mac_, .ether_type = EtherType::kIpv6}.emit(
      util::MutableView<EthernetLayout>(head.first<EthernetLayout::kSize>()));
  wire::Ipv6{.payload_length = NeighborLayout::kSize,
             .next_header = wire::IpProtocol::kIcmpv6,
             .hop_limit = Neighbor::kHopLimit,
             .source = from,
             .destination = destination}
      .emit(util::MutableView<Ipv6Layout>(head.subspan(EthernetLayout::kSize)));
  message.emit(util::MutableView<NeighborLayout>(head.subspan(kIpv6Size)), from, destination);
  below().transmit(frame);
}

}  // namespace softhca::hub
