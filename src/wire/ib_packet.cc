#include "wire/ib_packet.h"

#include <optional>

#include "wire/ethernet.h"
#include "wire/ib_header.h"
#include "wire/icrc.h"
#include "wire/ipv4.h"
#include "wire/ipv6.h"
#include "wire/lrh.h"
#include "wire/udp.h"
#include "wire/vcrc.h"
#include "wire/vlan.h"

namespace softhca::wire {
namespace {

using Error = PacketError;

/// Offsets of the BTH, and of the end of the ICRC.
struct Bounds {
  std::size_t begin = 0;
  std::size_t end = 0;
};
using Found = tl::expected<Bounds, Error>;

/// Parses the UDP header at `at`, which is RoCE's, in a datagram that ends at `end`.
Found parse_udp(std::span<const std::byte> head, std::size_t at, std::size_t end,
                IbPacket& packet) {
  const auto udp = Udp::parse(UdpView(head.subspan(at)));
  if (udp.length != end - at) return tl::unexpected(Error::kUdpLength);
  packet.address.udp_source_port = udp.source_port;
  return Bounds{at + UdpLayout::kSize, end};
}

Found parse_ipv4(const Frame& frame, IbPacket& packet) {
  const auto head = frame.head();
  using L = Ipv4Layout;
  const std::size_t at = packet.network_offset;
  if (head.size() < at + L::kSize) return tl::unexpected(Error::kOther);
  const Ipv4View ip(head.subspan(at));
  const auto header_size = ip.get(L::ihl) * std::size_t{4};
  if (ip.get(L::version) != 4 || header_size < L::kSize ||
      IpProtocol(ip.get(L::protocol)) != IpProtocol::kUdp || ip.get(L::fragment_offset) != 0 ||
      head.size() < at + header_size + UdpLayout::kSize) {
    return tl::unexpected(Error::kOther);
  }
  const UdpView udp(head.subspan(at + header_size));
  if (udp.get(UdpLayout::destination_port) != kRoceUdpPort) return tl::unexpected(Error::kOther);

  // From here on the packet is meant to be RoCE, so every fault is an error.
  if (header_size != L::kSize) return tl::unexpected(Error::kIpOptions);
  // A packet that never left this process has the checksum that IbHeader wrote.
  if (frame.icrc() != Frame::Icrc::kDeferred && checksum_of(ip.bytes()) != 0) {
    return tl::unexpected(Error::kIpChecksum);
  }
  if (ip.get(L::more_fragments) != 0) return tl::unexpected(Error::kFragment);
  const std::size_t length = ip.get(L::total_length);
  if (length < L::kSize + UdpLayout::kSize || at + length > frame.size()) {
    return tl::unexpected(Error::kIpLength);
  }
  packet.address.source_gid = Gid::from_ipv4(ip.get(L::source));
  packet.address.destination_gid = Gid::from_ipv4(ip.get(L::destination));
  packet.address.traffic_class = static_cast<std::uint8_t>(ip.get(L::tos));
  packet.address.hop_limit = static_cast<std::uint8_t>(ip.get(L::ttl));
  return parse_udp(head, at + L::kSize, at + length, packet);
}

Found parse_ipv6(std::span<const std::byte> head, std::size_t frame_size, IbPacket& packet) {
  using L = Ipv6Layout;
  const std::size_t at = packet.network_offset;
  if (head.size() < at + L::kSize + UdpLayout::kSize) return tl::unexpected(Error::kOther);
  const Ipv6View ip(head.subspan(at));
  const UdpView udp(head.subspan(at + L::kSize));
  if (ip.get(L::version) != 6 || IpProtocol(ip.get(L::next_header)) != IpProtocol::kUdp ||
      udp.get(UdpLayout::destination_port) != kRoceUdpPort) {
    return tl::unexpected(Error::kOther);
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
  return parse_udp(head, at + L::kSize, at + length, packet);
}

/// `end_max`: limit of the packet's end, including the ICRC.
Found parse_grh(std::span<const std::byte> head, std::size_t end_max, IbPacket& packet) {
  const std::size_t at = packet.network_offset;
  const auto begin = at + GrhLayout::kSize;
  if (head.size() < begin) return tl::unexpected(Error::kShort);
  const auto grh = Grh::parse(GrhView(head.subspan(at)));
  if (!grh || grh->next_header != Grh::kIbaTransport) return tl::unexpected(Error::kGrh);
  if (begin + grh->payload_length > end_max) return tl::unexpected(Error::kGrhLength);
  packet.address.source_gid = grh->sgid;
  packet.address.destination_gid = grh->dgid;
  packet.address.traffic_class = grh->traffic_class;
  packet.address.flow_label = grh->flow_label;
  packet.address.hop_limit = grh->hop_limit;
  return Bounds{begin, begin + grh->payload_length};
}

/// Parses Ethernet, at most one tag, and the headers behind them.
Found parse_ethernet(const Frame& frame, IbPacket& packet) {
  const auto head = frame.head();
  if (head.size() < EthernetLayout::kSize) return tl::unexpected(Error::kOther);
  const auto ethernet = Ethernet::parse(EthernetView(head));
  packet.address.destination_mac = ethernet.destination;
  packet.address.source_mac = ethernet.source;
  packet.network_offset = EthernetLayout::kSize;
  auto type = ethernet.ether_type;
  if (type == EtherType::kVlan) {
    if (head.size() < EthernetLayout::kSize + VlanLayout::kSize) {
      return tl::unexpected(Error::kOther);
    }
    const auto vlan = Vlan::parse(VlanView(head.subspan(EthernetLayout::kSize)));
    packet.address.vlan_tci = vlan.tci;
    packet.network_offset = EthernetLayout::kSize + VlanLayout::kSize;
    type = vlan.ether_type;
  }
  switch (type) {
    case EtherType::kIpv4:
      return parse_ipv4(frame, packet);
    case EtherType::kIpv6:
      return parse_ipv6(head, frame.size(), packet);
    case EtherType::kRoceV1:
      packet.address.encapsulation = Encapsulation::kRoceV1;
      return parse_grh(head, frame.size(), packet);
    default:
      return tl::unexpected(Error::kOther);
  }
}

bool vcrc_matches(const Frame& frame, std::size_t end) {
  std::array<std::byte, kVcrcSize> field;
  frame.copy_range(end, field);
  return util::load_le16(field.data()) == vcrc_of(frame, end);
}

/// Parses the LRH, and the GRH that it may announce.
Found parse_infiniband(const Frame& frame, IbPacket& packet) {
  const auto head = frame.head();
  if (head.size() < LrhLayout::kSize) return tl::unexpected(Error::kShort);
  const auto lrh = Lrh::parse(LrhView(head));
  if (lrh.link_version != 0) return tl::unexpected(Error::kLinkVersion);
  const std::size_t end = lrh.packet_length * spec::infiniband::kLrhLengthUnit;
  if (end + kVcrcSize != frame.size()) return tl::unexpected(Error::kLinkLength);
  if (frame.icrc() != Frame::Icrc::kDeferred && !vcrc_matches(frame, end)) {
    return tl::unexpected(Error::kVcrc);
  }
  packet.address.destination_lid = lrh.dlid;
  packet.address.source_lid = lrh.slid;
  packet.address.service_level = lrh.service_level;
  packet.address.virtual_lane = lrh.virtual_lane;
  packet.network_offset = LrhLayout::kSize;
  switch (lrh.next_header) {
    case LrhNextHeader::IBA_LOCAL:
      packet.address.encapsulation = Encapsulation::kLocal;
      return Bounds{LrhLayout::kSize, end};
    case LrhNextHeader::IBA_GLOBAL: {
      packet.address.encapsulation = Encapsulation::kGlobal;
      auto found = parse_grh(head, end, packet);
      // The VCRC follows the ICRC directly.
      if (found && found->end != end) return tl::unexpected(Error::kGrhLength);
      return found;
    }
    default:
      return tl::unexpected(Error::kOther);
  }
}

/// @pre `bytes` holds all headers of `info`
void parse_ext_headers(const OpcodeInfo& info, std::span<const std::byte> bytes, ExtHeaders& ext) {
  const auto take = [&]<class Header, class Layout>(ExtHeader which, Header& header, Layout) {
    if (!info.has(which)) return;
    header = Header::parse(util::View<Layout>(bytes));
    bytes = bytes.subspan(Layout::kSize);
  };
  if (info.headers_size == 0) return;
  // Fast path: nearly every packet has none, or only one of these.
  constexpr ExtHeaderSet kNone;
  if (info.headers == kNone.with(ExtHeader::kReth)) {
    ext.reth = Reth::parse(util::View<RethLayout>(bytes));
    return;
  }
  if (info.headers == kNone.with(ExtHeader::kAeth)) {
    ext.aeth = Aeth::parse(util::View<AethLayout>(bytes));
    return;
  }
  take(ExtHeader::kDeth, ext.deth, DethLayout{});
  take(ExtHeader::kXrcEth, ext.xrceth, XrcEthLayout{});
  take(ExtHeader::kDcEth, ext.dceth, DcEthLayout{});
  take(ExtHeader::kReth, ext.reth, RethLayout{});
  take(ExtHeader::kAtomicEth, ext.atomic, AtomicEthLayout{});
  take(ExtHeader::kAeth, ext.aeth, AethLayout{});
  take(ExtHeader::kAtomicAckEth, ext.atomic_ack, AtomicAckEthLayout{});
  take(ExtHeader::kImmDt, ext.immdt, ImmDtLayout{});
  take(ExtHeader::kIeth, ext.ieth, IethLayout{});
}

bool icrc_matches(const Frame& frame, const IbPacket& packet, std::size_t end) {
  std::array<std::byte, kIcrcSize> field;
  frame.copy_range(end, field);
  return util::load_le32(field.data()) ==
         icrc_of(frame, {packet.network_offset, network_header(packet.address)}, end);
}

}  // namespace

std::optional<PacketError> IbPacket::parse_transport(const Frame& frame, std::size_t begin,
                                                     std::size_t end) {
  const auto head = frame.head();
  const auto readable = std::min(head.size(), end);
  auto offset = begin;
  if (offset + BthLayout::kSize > readable) return Error::kShort;
  bth = Bth::parse(BthView(head.subspan(offset)));
  if (bth.tver != 0) return Error::kTransportVersion;
  const auto& opcode = info();
  if (!opcode.defined) return Error::kUnknownOpcode;
  offset += BthLayout::kSize;
  if (offset + opcode.headers_size > readable) return Error::kShort;
  parse_ext_headers(opcode, head.subspan(offset), ext);
  offset += opcode.headers_size;
  if (offset + bth.pad_count + kIcrcSize > end) return Error::kShort;
  // IBTA 9.2: "Pad Count: the number of pad bytes that align the payload to a 4 byte boundary".
  if ((end - offset) % 4 != 0) return Error::kPad;
  payload_offset = static_cast<std::uint32_t>(offset);
  payload_size = static_cast<std::uint16_t>(end - kIcrcSize - bth.pad_count - offset);
  if (frame.icrc() == Frame::Icrc::kDeferred) return std::nullopt;
  if (!icrc_matches(frame, *this, end - kIcrcSize)) return Error::kIcrc;
  return std::nullopt;
}

std::string_view to_string(PacketError error) {
  switch (error) {
    case Error::kOther:
      return "not a packet of the InfiniBand transport";
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
    case Error::kGrh:
      return "GRH version is not 6, or no BTH follows";
    case Error::kGrhLength:
      return "GRH length does not fit the frame";
    case Error::kLinkVersion:
      return "LRH version is not 0";
    case Error::kLinkLength:
      return "LRH length does not fit the frame";
    case Error::kVcrc:
      return "wrong VCRC";
    case Error::kPad:
      return "payload and pad are no multiple of 4 bytes";
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

tl::expected<IbPacket, PacketError> IbPacket::parse(const Frame& frame) {
  tl::expected<IbPacket, PacketError> result;
  auto& packet = *result;
  const auto bounds = frame.link() == Link::kEthernet ? parse_ethernet(frame, packet)
                                                      : parse_infiniband(frame, packet);
  if (!bounds) return tl::unexpected(bounds.error());
  if (const auto error = packet.parse_transport(frame, bounds->begin, bounds->end)) {
    return tl::unexpected(*error);
  }
  return result;
}

bool emit_ud_grh(const Frame& frame, const IbPacket& packet,
                 std::span<std::byte, GrhLayout::kSize> out) {
  if (!packet.address.is_global()) return false;
  constexpr auto kGap = GrhLayout::kSize - Ipv4Layout::kSize;
  const auto ipv4 = out.subspan<kGap>();
  if (frame.headers() != nullptr && frame.path().form == PathHeaders::Form::kIpv4) {
    // The common case: only the IPv4 header must become bytes.
    std::memset(out.data(), 0, kGap);
    write_ipv4(frame.path(), frame.head_room(), frame.size() - frame.path().network_offset, ipv4);
    return true;
  }
  const auto network = frame.head().subspan(packet.network_offset);
  if (!packet.address.is_ipv4()) {
    static_assert(Ipv6Layout::kSize == GrhLayout::kSize);
    std::memcpy(out.data(), network.data(), GrhLayout::kSize);
    return true;
  }
  std::memset(out.data(), 0, kGap);
  std::memcpy(ipv4.data(), network.data(), Ipv4Layout::kSize);
  return true;
}

}  // namespace softhca::wire
