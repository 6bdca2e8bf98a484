#include "ethernet/packet_info.h"

#include <algorithm>

#include "util/endian.h"
#include "wire/checksum.h"
#include "wire/ethernet.h"
#include "wire/ipv6.h"
#include "wire/tcp.h"
#include "wire/udp.h"

namespace softhca::ethernet {
namespace {

using wire::EtherType;
using wire::IpProtocol;

/// Most consecutive IPv6 extension headers: more than any real packet has.
constexpr int kExtensionHeadersMax = 8;

class Classifier {
 public:
  /// `frame_size` absent: a template, whose length fields are ignored.
  Classifier(std::span<const std::byte> head, std::optional<std::size_t> frame_size)
      : head_(head), frame_size_(frame_size) {}

  PacketInfo run() {
    if (!link()) return info_;
    std::optional<std::size_t> l4;
    if (info_.ether_type == EtherType::kIpv4) l4 = ipv4();
    if (info_.ether_type == EtherType::kIpv6) l4 = ipv6();
    if (!l4 || l3_too_short_ || *l4 > l3_end()) return info_;
    info_.l4_offset = static_cast<std::uint16_t>(*l4);
    // PRM 3.3.1 and RFC 1122 4.1.1 define ports only in whole datagrams.
    if (info_.ip.fragment) return info_;
    if (info_.ip.protocol == IpProtocol::kTcp) tcp();
    if (info_.ip.protocol == IpProtocol::kUdp) udp();
    if (info_.l4 != L4Type::kNone) sum_pseudo_header();
    // RFC 4303 2: an ESP header begins with the SPI; RFC 4302 2: an AH header has it at byte 4.
    if (info_.ip.protocol == IpProtocol::kEsp) ipsec(0);
    if (info_.ip.protocol == IpProtocol::kAh) ipsec(4);
    return info_;
  }

 private:
  bool has(std::size_t offset, std::size_t size) const { return offset + size <= head_.size(); }
  std::size_t l3_end() const { return info_.l3_offset + info_.l3_size; }

  bool link() {
    using wire::VlanLayout;
    if (!has(0, wire::EthernetLayout::kSize)) return false;
    const auto ethernet = wire::Ethernet::parse(wire::EthernetView(head_));
    info_.destination_mac = ethernet.destination;
    info_.source_mac = ethernet.source;
    info_.ether_type = ethernet.ether_type;
    std::size_t at = wire::EthernetLayout::kSize;
    for (auto* tag : {&info_.tag, &info_.inner_tag}) {
      const auto type = info_.ether_type;
      if (type != EtherType::kVlan && type != EtherType::kServiceVlan) break;
      if (!has(at, VlanLayout::kSize)) return false;
      const auto vlan = wire::Vlan::parse(wire::VlanView(head_.subspan(at)));
      *tag = PacketInfo::Tag{type, vlan.tci};
      info_.ether_type = vlan.ether_type;
      at += VlanLayout::kSize;
    }
    info_.l3_offset = static_cast<std::uint16_t>(at);
    return true;
  }

  /// `length`: the packet's length according to the IP header; `header`: the least that it must
  /// contain.
  void set_l3_size(std::size_t length, std::size_t header) {
    if (!frame_size_) {
      info_.l3_size = head_.size() - info_.l3_offset;
      info_.l3_length_ok = info_.l3_size >= header;
      l3_too_short_ = !info_.l3_length_ok;
      return;
    }
    const auto there = *frame_size_ - info_.l3_offset;
    // Headers are parsed where they are, even if IP's length ends before them.
    l3_too_short_ = length < header;
    info_.l3_length_ok = !l3_too_short_ && length <= there;
    info_.l3_size = info_.l3_length_ok ? length : there;
  }

  /// Returns the offset behind the IP header.
  std::optional<std::size_t> ipv4() {
    using L = wire::Ipv4Layout;
    const std::size_t at = info_.l3_offset;
    if (!has(at, L::kSize)) return std::nullopt;
    const wire::Ipv4View ip(head_.subspan(at));
    const auto header = ip.get(L::ihl) * std::size_t{4};
    if (ip.get(L::version) != 4 || header < L::kSize || !has(at, header)) return std::nullopt;
    info_.l3 = L3Type::kIpv4;
    set_l3_size(ip.get(L::total_length), header);
    info_.ip.source = wire::Gid::from_ipv4(ip.get(L::source));
    info_.ip.destination = wire::Gid::from_ipv4(ip.get(L::destination));
    info_.ip.traffic_class = {static_cast<std::uint8_t>(ip.get(L::tos))};
    info_.ip.hop_limit = static_cast<std::uint8_t>(ip.get(L::ttl));
    info_.ip.protocol = IpProtocol(ip.get(L::protocol));
    info_.ip.fragment = ip.get(L::more_fragments) != 0 || ip.get(L::fragment_offset) != 0;
    info_.ip.options = header != L::kSize;
    info_.ip.source_routed = has_source_route(head_.subspan(at + L::kSize, header - L::kSize));
    return at + header;
  }

  /// RFC 791 3.1: option types 131 (LSRR) and 137 (SSRR).
  static bool has_source_route(std::span<const std::byte> options) {
    while (!options.empty()) {
      const auto type = std::to_integer<unsigned>(options[0]);
      if (type == 131 || type == 137) return true;
      if (type == 0) return false;
      const auto size = type == 1            ? 1
                        : options.size() < 2 ? 0
                                             : std::to_integer<std::size_t>(options[1]);
      if (size == 0 || (type != 1 && size < 2) || size > options.size()) return false;
      options = options.subspan(size);
    }
    return false;
  }

  std::optional<std::size_t> ipv6() {
    using L = wire::Ipv6Layout;
    const std::size_t at = info_.l3_offset;
    if (!has(at, L::kSize)) return std::nullopt;
    const auto ip = wire::Ipv6::parse(wire::Ipv6View(head_.subspan(at)));
    if (!ip) return std::nullopt;
    info_.l3 = L3Type::kIpv6;
    set_l3_size(L::kSize + ip->payload_length, L::kSize);
    info_.ip.source = ip->source;
    info_.ip.destination = ip->destination;
    info_.ip.traffic_class = {ip->traffic_class};
    info_.ip.hop_limit = ip->hop_limit;
    info_.ip.flow_label = ip->flow_label;
    info_.ip.protocol = ip->next_header;
    return ipv6_extensions(at + L::kSize);
  }

  /// RFC 8200 4: headers of 8 bytes or more, each of which names the next.
  std::optional<std::size_t> ipv6_extensions(std::size_t at) {
    for (int i = 0; i != kExtensionHeadersMax; ++i) {
      const auto type = info_.ip.protocol;
      if (type != IpProtocol::kIpv6HopByHop && type != IpProtocol::kIpv6Route &&
          type != IpProtocol::kIpv6Fragment && type != IpProtocol::kIpv6DestinationOptions) {
        return at;
      }
      constexpr std::size_t kUnit = 8;
      if (!has(at, kUnit)) return std::nullopt;
      const auto units = std::to_integer<std::size_t>(head_[at + 1]);
      info_.ip.options = true;
      info_.ip.source_routed |= type == IpProtocol::kIpv6Route;
      info_.ip.fragment |= type == IpProtocol::kIpv6Fragment;
      info_.ip.protocol = IpProtocol(head_[at]);
      // The second byte of a fragment header is reserved, because it always has 8 bytes.
      at += type == IpProtocol::kIpv6Fragment ? kUnit : (units + 1) * kUnit;
    }
    return std::nullopt;
  }

  void tcp() {
    using L = wire::TcpLayout;
    const std::size_t at = info_.l4_offset;
    if (!has(at, L::kSize) || at + L::kSize > l3_end()) return;
    const wire::TcpView tcp(head_.subspan(at));
    const auto size = tcp.get(L::data_offset) * std::size_t{4};
    if (size < L::kSize || !has(at, size) || at + size > l3_end()) return;
    info_.l4 = L4Type::kTcp;
    info_.l4_header_size = static_cast<std::uint16_t>(size);
    info_.source_port = static_cast<std::uint16_t>(tcp.get(L::source_port));
    info_.destination_port = static_cast<std::uint16_t>(tcp.get(L::destination_port));
    info_.tcp_flags = static_cast<std::uint16_t>(tcp.get(L::all_flags));
  }

  void udp() {
    using L = wire::UdpLayout;
    const std::size_t at = info_.l4_offset;
    if (!has(at, L::kSize) || at + L::kSize > l3_end()) return;
    const wire::UdpView udp(head_.subspan(at));
    info_.l4 = L4Type::kUdp;
    info_.l4_header_size = L::kSize;
    info_.source_port = static_cast<std::uint16_t>(udp.get(L::source_port));
    info_.destination_port = static_cast<std::uint16_t>(udp.get(L::destination_port));
  }

  void sum_pseudo_header() {
    // Only the four IPv4 bytes of a mapped address count.
    const std::size_t unused = info_.l3 == L3Type::kIpv4 ? 12 : 0;
    wire::ChecksumSum sum;
    sum.add(std::span(info_.ip.source.bytes).subspan(unused));
    sum.add(std::span(info_.ip.destination.bytes).subspan(unused));
    sum.add_u16(static_cast<std::uint16_t>(info_.ip.protocol));
    info_.pseudo_sum = sum.value();
  }

  void ipsec(std::size_t spi) {
    const std::size_t at = info_.l4_offset + spi;
    constexpr std::size_t kSpiSize = 4;
    if (!has(at, kSpiSize) || at + kSpiSize > l3_end()) return;
    info_.ipsec_spi = util::load_be32(head_.data() + at);
  }

  const std::span<const std::byte> head_;
  const std::optional<std::size_t> frame_size_;
  PacketInfo info_;
  bool l3_too_short_ = false;  ///< IP's length is less than its header
};

}  // namespace

PacketInfo classify(const wire::Frame& frame) {
  return Classifier(frame.head(), frame.size()).run();
}

PacketInfo classify_template(std::span<const std::byte> headers) {
  return Classifier(headers, std::nullopt).run();
}

}  // namespace softhca::ethernet
