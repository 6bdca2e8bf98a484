#include "wire/roce.h"

#include "wire/icrc.h"

namespace softhca::wire {
namespace {

using Error = RoceError;

/// The bounds of a datagram that is RoCE by its UDP port.
struct Datagram {
  std::size_t udp = 0;  ///< offset of the UDP header
  std::size_t end = 0;  ///< offset of what follows the IP packet
};

tl::expected<Datagram, Error> parse_ipv4(std::span<const std::byte> head, std::size_t frame_size,
                                         RocePacket& packet) {
  using L = Ipv4Layout;
  const std::size_t at = packet.network_offset;
  if (head.size() < at + L::kSize) return tl::unexpected(Error::kNotRoce);
  const Ipv4View ip(head.subspan(at));
  const auto header_size = ip.get(L::ihl) * std::size_t{4};
  if (ip.get(L::version) != 4 || header_size < L::kSize ||
      IpProtocol(ip.get(L::protocol)) != IpProtocol::kUdp || ip.get(L::fragment_offset) != 0 ||
      head.size() < at + header_size + UdpLayout::kSize) {
    return tl::unexpected(Error::kNotRoce);
  }
  const UdpView udp(head.subspan(at + header_size));
  if (udp.get(UdpLayout::destination_port) != kRoceUdpPort) return tl::unexpected(Error::kNotRoce);

  // From here on it is meant to be RoCE, and anything wrong is worth a word.
  if (header_size != L::kSize) return tl::unexpected(Error::kIpOptions);
  if (checksum_of(ip.bytes()) != 0) return tl::unexpected(Error::kIpChecksum);
  if (ip.get(L::more_fragments) != 0) return tl::unexpected(Error::kFragment);
  const std::size_t length = ip.get(L::total_length);
  if (length < L::kSize + UdpLayout::kSize || at + length > frame_size) {
    return tl::unexpected(Error::kIpLength);
  }
  packet.address.source_gid = Gid::from_ipv4(ip.get(L::source));
  packet.address.destination_gid = Gid::from_ipv4(ip.get(L::destination));
  packet.address.traffic_class = static_cast<std::uint8_t>(ip.get(L::tos));
  packet.address.hop_limit = static_cast<std::uint8_t>(ip.get(L::ttl));
  return Datagram{at + L::kSize, at + length};
}

tl::expected<Datagram, Error> parse_ipv6(std::span<const std::byte> head, std::size_t frame_size,
                                         RocePacket& packet) {
  using L = Ipv6Layout;
  const std::size_t at = packet.network_offset;
  if (head.size() < at + L::kSize + UdpLayout::kSize) return tl::unexpected(Error::kNotRoce);
  const Ipv6View ip(head.subspan(at));
  const UdpView udp(head.subspan(at + L::kSize));
  if (ip.get(L::version) != 6 || IpProtocol(ip.get(L::next_header)) != IpProtocol::kUdp ||
      udp.get(UdpLayout::destination_port) != kRoceUdpPort) {
    return tl::unexpected(Error::kNotRoce);
  }

  const std::size_t length = L::kSize + ip.get(L::payload_length);
  if (length < L::kSize + UdpLayout::kSize || at + length > frame_size) {
    return tl::unexpected(Error::kIpLength);
  }
  packet.address.source_gid = Gid::from(ip.get(L::source));
  packet.address.destination_gid = Gid::from(ip.get(L::destination));
  if (packet.address.source_gid.is_ipv4() || packet.address.destination_gid.is_ipv4()) {
    return tl::unexpected(Error::kMappedAddress);
  }
  packet.address.traffic_class = static_cast<std::uint8_t>(ip.get(L::traffic_class));
  packet.address.flow_label = ip.get(L::flow_label);
  packet.address.hop_limit = static_cast<std::uint8_t>(ip.get(L::hop_limit));
  return Datagram{at + L::kSize, at + length};
}

/// Ethernet and at most one tag. Nothing if what follows is not IP.
std::optional<EtherType> parse_link(std::span<const std::byte> head, RocePacket& packet) {
  if (head.size() < EthernetLayout::kSize) return std::nullopt;
  const auto ethernet = Ethernet::parse(EthernetView(head));
  packet.address.destination_mac = ethernet.destination;
  packet.address.source_mac = ethernet.source;
  packet.network_offset = EthernetLayout::kSize;
  auto type = ethernet.ether_type;
  if (type == EtherType::kVlan) {
    if (head.size() < EthernetLayout::kSize + VlanLayout::kSize) return std::nullopt;
    const auto vlan = Vlan::parse(VlanView(head.subspan(EthernetLayout::kSize)));
    packet.address.vlan_tci = vlan.tci;
    packet.network_offset = EthernetLayout::kSize + VlanLayout::kSize;
    type = vlan.ether_type;
  }
  return type;
}

/// @pre `bytes` holds all headers of `info`
void parse_ext_headers(const OpcodeInfo& info, std::span<const std::byte> bytes, ExtHeaders& ext) {
  const auto take = [&]<class Header, class Layout>(ExtHeader which, Header& header, Layout) {
    if (!info.has(which)) return;
    header = Header::parse(util::View<Layout>(bytes));
    bytes = bytes.subspan(Layout::kSize);
  };
  if (info.headers_size == 0) return;
  take(ExtHeader::kDeth, ext.deth, DethLayout{});
  take(ExtHeader::kXrcEth, ext.xrceth, XrcEthLayout{});
  take(ExtHeader::kReth, ext.reth, RethLayout{});
  take(ExtHeader::kAtomicEth, ext.atomic, AtomicEthLayout{});
  take(ExtHeader::kAeth, ext.aeth, AethLayout{});
  take(ExtHeader::kAtomicAckEth, ext.atomic_ack, AtomicAckEthLayout{});
  take(ExtHeader::kImmDt, ext.immdt, ImmDtLayout{});
  take(ExtHeader::kIeth, ext.ieth, IethLayout{});
}

bool icrc_matches(const Frame& frame, std::size_t network_offset, std::size_t end) {
  std::array<std::byte, kIcrcSize> field;
  auto* at = field.data();
  frame.for_each_piece(end, kIcrcSize, [&](std::span<const std::byte> piece) {
    std::memcpy(at, piece.data(), piece.size());
    at += piece.size();
  });
  return util::load_le32(field.data()) == icrc_of(frame, network_offset, end);
}

/// BTH and what follows it, in [offset, end).
std::optional<Error> parse_transport(const Frame& frame, std::size_t offset, std::size_t end,
                                     RocePacket& packet) {
  const auto head = frame.head();
  const auto readable = std::min(head.size(), end);
  if (offset + BthLayout::kSize > readable) return Error::kShort;
  packet.bth = Bth::parse(BthView(head.subspan(offset)));
  if (packet.bth.tver != 0) return Error::kTransportVersion;
  const auto& info = packet.info();
  if (!info.defined) return Error::kUnknownOpcode;
  offset += BthLayout::kSize;
  if (offset + info.headers_size > readable) return Error::kShort;
  parse_ext_headers(info, head.subspan(offset), packet.ext);
  offset += info.headers_size;
  if (offset + packet.bth.pad_count + kIcrcSize > end) return Error::kShort;
  packet.payload_offset = static_cast<std::uint16_t>(offset);
  packet.payload_size = static_cast<std::uint16_t>(end - kIcrcSize - packet.bth.pad_count - offset);
  if (frame.icrc() == Frame::Icrc::kDeferred) return std::nullopt;
  if (!icrc_matches(frame, packet.network_offset, end - kIcrcSize)) return Error::kIcrc;
  return std::nullopt;
}

}  // namespace

std::string_view to_string(RoceError error) {
  switch (error) {
    case Error::kNotRoce:
      return "not a RoCEv2 packet";
    case Error::kFragment:
      return "an IPv4 fragment";
    case Error::kIpOptions:
      return "IPv4 options";
    case Error::kIpChecksum:
      return "wrong IPv4 header checksum";
    case Error::kMappedAddress:
      return "IPv4-mapped address in an IPv6 header";
    case Error::kIpLength:
      return "IP length does not fit the frame";
    case Error::kUdpLength:
      return "UDP length does not fit the IP length";
    case Error::kShort:
      return "too short for its headers, pad and ICRC";
    case Error::kUnknownOpcode:
      return "unknown BTH opcode";
    case Error::kTransportVersion:
      return "transport header version is not 0";
    case Error::kIcrc:
      return "wrong ICRC";
  }
  return "unknown";
}

tl::expected<RocePacket, RoceError> RocePacket::parse(const Frame& frame) {
  tl::expected<RocePacket, RoceError> result;
  auto& packet = *result;
  const auto head = frame.head();
  const auto type = parse_link(head, packet);
  if (type != EtherType::kIpv4 && type != EtherType::kIpv6) {
    return tl::unexpected(Error::kNotRoce);
  }
  const auto datagram = type == EtherType::kIpv4 ? parse_ipv4(head, frame.size(), packet)
                                                 : parse_ipv6(head, frame.size(), packet);
  if (!datagram) return tl::unexpected(datagram.error());
  const auto udp = Udp::parse(UdpView(head.subspan(datagram->udp)));
  if (udp.length != datagram->end - datagram->udp) return tl::unexpected(Error::kUdpLength);
  packet.address.udp_source_port = udp.source_port;
  const auto error =
      parse_transport(frame, datagram->udp + UdpLayout::kSize, datagram->end, packet);
  if (error) return tl::unexpected(*error);
  return result;
}

void emit_ud_grh(const Frame& frame, const RocePacket& packet, std::span<std::byte, 40> out) {
  const auto network = frame.head().subspan(packet.network_offset);
  if (!packet.address.is_ipv4()) {
    std::memcpy(out.data(), network.data(), Ipv6Layout::kSize);
    return;
  }
  constexpr auto kGap = GrhLayout::kSize - Ipv4Layout::kSize;
  std::memset(out.data(), 0, kGap);
  std::memcpy(out.data() + kGap, network.data(), Ipv4Layout::kSize);
}

}  // namespace softhca::wire
