// The way out: headers of a path, prepared once.
#include "wire/roce.h"

namespace softhca::wire {
namespace {

constexpr std::uint8_t pad_of(std::size_t payload_size) {
  return static_cast<std::uint8_t>((4 - payload_size % 4) % 4);
}

std::span<std::byte> emit_ext_headers(const OpcodeInfo& info, const ExtHeaders& ext,
                                      std::span<std::byte> out) {
  const auto put = [&]<class Layout>(ExtHeader which, const auto& header, Layout) {
    if (!info.has(which)) return;
    header.emit(util::MutableView<Layout>(out));
    out = out.subspan(Layout::kSize);
  };
  if (info.headers_size == 0) return out;
  put(ExtHeader::kDeth, ext.deth, DethLayout{});
  put(ExtHeader::kXrcEth, ext.xrceth, XrcEthLayout{});
  put(ExtHeader::kReth, ext.reth, RethLayout{});
  put(ExtHeader::kAtomicEth, ext.atomic, AtomicEthLayout{});
  put(ExtHeader::kAeth, ext.aeth, AethLayout{});
  put(ExtHeader::kAtomicAckEth, ext.atomic_ack, AtomicAckEthLayout{});
  put(ExtHeader::kImmDt, ext.immdt, ImmDtLayout{});
  put(ExtHeader::kIeth, ext.ieth, IethLayout{});
  return out;
}

/// With a length of 0 the header's checksum covers all that is constant.
Ipv4 ipv4_of(const RoceAddress& address) {
  Ipv4 ip;
  ip.tos = address.traffic_class;
  // IBTA Annex A17 17.3.1.1: never fragmented. RFC 6864 4: such a packet needs no identification.
  ip.dont_fragment = true;
  ip.ttl = address.hop_limit;
  ip.protocol = IpProtocol::kUdp;
  ip.source = address.source_gid.to_ipv4();
  ip.destination = address.destination_gid.to_ipv4();
  return ip;
}

Ipv6 ipv6_of(const RoceAddress& address) {
  Ipv6 ip;
  ip.traffic_class = address.traffic_class;
  ip.flow_label = address.flow_label;
  ip.next_header = IpProtocol::kUdp;
  ip.hop_limit = address.hop_limit;
  ip.source = address.source_gid;
  ip.destination = address.destination_gid;
  return ip;
}

/// Adds `length` to a header whose length field was 0, and to its checksum (RFC 1624 3).
void set_ipv4_length(std::span<std::byte> header, std::uint16_t length) {
  using L = Ipv4Layout;
  const util::MutableView<L> ip(header);
  std::uint32_t sum = (~ip.get(L::checksum) & L::checksum.kMax) + length;
  sum = (sum & 0xffff) + (sum >> 16);
  ip.set(L::total_length, length);
  ip.set(L::checksum, ~sum & L::checksum.kMax);
}

}  // namespace

RoceHeader::RoceHeader(const RoceAddress& address) : is_ipv4_(address.is_ipv4()) {
  assert(address.source_gid.is_ipv4() == is_ipv4_ && "GIDs of two IP versions");
  const auto ip_type = is_ipv4_ ? EtherType::kIpv4 : EtherType::kIpv6;
  const std::span<std::byte> out(bytes_);
  Ethernet{address.destination_mac, address.source_mac,
           address.vlan_tci ? EtherType::kVlan : ip_type}
      .emit(util::MutableView<EthernetLayout>(out));
  std::size_t at = EthernetLayout::kSize;
  if (address.vlan_tci) {
    Vlan{*address.vlan_tci, ip_type}.emit(util::MutableView<VlanLayout>(out.subspan(at)));
    at += VlanLayout::kSize;
  }
  network_offset_ = static_cast<std::uint8_t>(at);
  if (is_ipv4_) {
    ipv4_of(address).emit(util::MutableView<Ipv4Layout>(out.subspan(at)));
    at += Ipv4Layout::kSize;
  } else {
    ipv6_of(address).emit(util::MutableView<Ipv6Layout>(out.subspan(at)));
    at += Ipv6Layout::kSize;
  }
  // IBTA Annex A17 17.3.1.3: the ICRC protects the packet, so the UDP checksum is 0.
  Udp{address.udp_source_port, kRoceUdpPort, 0, 0}.emit(
      util::MutableView<UdpLayout>(out.subspan(at)));
  size_ = static_cast<std::uint8_t>(at + UdpLayout::kSize);
}

void RoceHeader::emit(const Bth& bth, const ExtHeaders& ext, std::size_t payload_size,
                      Frame& frame) const {
  const auto& info = wire::info(bth.opcode);
  assert(info.defined && size_ != 0);
  const auto pad = pad_of(payload_size);
  const auto head = frame.resize_head(size_ + BthLayout::kSize + info.headers_size);
  const auto tail = frame.resize_tail(pad + kIcrcSize);
  std::memcpy(head.data(), bytes_.data(), size_);
  std::memset(tail.data(), 0, tail.size());
  frame.set_icrc(Frame::Icrc::kDeferred);

  const auto ip_size = head.size() - network_offset_ + payload_size + tail.size();
  assert(ip_size <= 0xffff);
  const auto network = head.subspan(network_offset_);
  std::size_t udp_offset;
  if (is_ipv4_) {
    set_ipv4_length(network, static_cast<std::uint16_t>(ip_size));
    udp_offset = Ipv4Layout::kSize;
  } else {
    util::MutableView<Ipv6Layout>(network).set(
        Ipv6Layout::payload_length, static_cast<std::uint32_t>(ip_size - Ipv6Layout::kSize));
    udp_offset = Ipv6Layout::kSize;
  }
  util::MutableView<UdpLayout>(network.subspan(udp_offset))
      .set(UdpLayout::length, static_cast<std::uint32_t>(ip_size - udp_offset));

  const util::MutableView<BthLayout> bth_out(head.subspan(size_));
  bth.emit(bth_out);
  bth_out.set(BthLayout::pad_count, pad);
  const auto rest = emit_ext_headers(info, ext, head.subspan(size_ + BthLayout::kSize));
  assert(rest.empty());
  (void)rest;
}

}  // namespace softhca::wire
