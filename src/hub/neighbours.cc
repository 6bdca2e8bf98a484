#include "hub/neighbours.h"

#include <algorithm>

namespace softhca::hub {

using wire::Arp;
using wire::ArpLayout;
using wire::EthernetLayout;
using wire::EtherType;
using wire::MacAddress;

namespace {

constexpr std::size_t kSize = EthernetLayout::kSize + ArpLayout::kSize;
/// IEEE 802.3 4.4.2 minFrameSize, without the FCS.
constexpr std::size_t kFrameMin = 60;

}  // namespace

Neighbours::Neighbours(fabric::Port& below, const MacAddress& mac, const Ipv4Address& address)
    : Port(below.shortcuts()), below_(below), mac_(mac), address_(address) {}

std::optional<MacAddress> Neighbours::find(const Ipv4Address& address) const {
  const auto at = known_.find(address);
  return at == known_.end() ? std::nullopt : std::optional(at->second);
}

void Neighbours::ask(const Ipv4Address& address) {
  send(MacAddress::broadcast(), {.operation = Arp::kRequest,
                                 .sender_mac = mac_,
                                 .sender_ip = address_,
                                 .target_mac = {},
                                 .target_ip = address});
}

void Neighbours::set_receiver(fabric::Receiver* receiver) {
  filter_.behind = receiver;
  below_.set_receiver(receiver == nullptr ? nullptr : &filter_);
}

void Neighbours::Filter::handle_frame(const wire::Frame& frame) {
  const auto header = frame.link_header();
  if (header.size() == EthernetLayout::kSize &&
      wire::EthernetView(header).get(EthernetLayout::ether_type) ==
          static_cast<std::uint32_t>(EtherType::kArp)) {
    return owner_.handle_arp(frame);
  }
  behind->handle_frame(frame);
}

/// RFC 826 "Packet Reception". What does not fit is passed over; the sender may be anybody.
void Neighbours::handle_arp(const wire::Frame& frame) {
  const auto head = frame.head();
  if (head.size() < kSize) return;
  const auto arp = Arp::parse(wire::ArpView(head.subspan(EthernetLayout::kSize, ArpLayout::kSize)));
  if (!arp || arp->sender_mac.is_multicast() || arp->sender_ip == address_) return;
  // An address that is known may have moved; a new one is learnt by whom it is told to.
  if (arp->target_ip == address_ || known_.contains(arp->sender_ip)) {
    learn(arp->sender_ip, arp->sender_mac);
  }
  if (arp->target_ip != address_ || arp->operation != Arp::kRequest) return;
  send(arp->sender_mac, {.operation = Arp::kReply,
                         .sender_mac = mac_,
                         .sender_ip = address_,
                         .target_mac = arp->sender_mac,
                         .target_ip = arp->sender_ip});
}

void Neighbours::learn(const Ipv4Address& address, const MacAddress& mac) {
  if (address == Ipv4Address{}) return;  // a probe: nobody's yet (RFC 5227 1.1)
  if (known_.size() == kMax && !known_.contains(address)) known_.erase(known_.begin());
  known_[address] = mac;
}

void Neighbours::send(const MacAddress& to, const Arp& arp) {
  wire::Frame frame;
  const auto head = frame.resize_head(kFrameMin);
  std::ranges::fill(head, std::byte{0});
  wire::Ethernet{.destination = to, .source = mac_, .ether_type = EtherType::kArp}.emit(
      util::MutableView<EthernetLayout>(head.first<EthernetLayout::kSize>()));
  arp.emit(util::MutableView<ArpLayout>(head.subspan(EthernetLayout::kSize)));
  below_.transmit(frame);
}

}  // namespace softhca::hub
