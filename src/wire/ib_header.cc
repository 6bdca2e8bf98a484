#include "wire/ib_header.h"

#include "wire/icrc.h"
#include "wire/lrh.h"
#include "wire/vcrc.h"

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
  // Nearly every packet has none, or one of these alone.
  constexpr ExtHeaderSet kNone;
  if (info.headers == kNone.with(ExtHeader::kReth)) {
    ext.reth.emit(util::MutableView<RethLayout>(out));
    return {};
  }
  if (info.headers == kNone.with(ExtHeader::kAeth)) {
    ext.aeth.emit(util::MutableView<AethLayout>(out));
    return {};
  }
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
Ipv4 ipv4_of(const IbAddress& address) {
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

Ipv6 ipv6_of(const IbAddress& address) {
  Ipv6 ip;
  ip.traffic_class = address.traffic_class;
  ip.flow_label = address.flow_label;
  ip.next_header = IpProtocol::kUdp;
  ip.hop_limit = address.hop_limit;
  ip.source = address.source_gid;
  ip.destination = address.destination_gid;
  return ip;
}

Grh grh_of(const IbAddress& address) {
  Grh grh;
  grh.traffic_class = address.traffic_class;
  grh.flow_label = address.flow_label;
  grh.hop_limit = address.hop_limit;
  grh.sgid = address.source_gid;
  grh.dgid = address.destination_gid;
  return grh;
}

Lrh lrh_of(const IbAddress& address) {
  Lrh lrh;
  lrh.virtual_lane = address.virtual_lane;
  lrh.service_level = address.service_level;
  lrh.next_header = address.is_global() ? LrhNextHeader::IBA_GLOBAL : LrhNextHeader::IBA_LOCAL;
  lrh.dlid = address.destination_lid;
  lrh.slid = address.source_lid;
  return lrh;
}

/// `base`: the header's checksum while its length was 0 (RFC 1624 3).
void set_ipv4_length(std::span<std::byte> header, std::uint16_t base, std::uint16_t length) {
  using L = Ipv4Layout;
  const util::MutableView<L> ip(header);
  std::uint32_t sum = (~std::uint32_t{base} & L::checksum.kMax) + length;
  sum = (sum & 0xffff) + (sum >> 16);
  ip.set(L::total_length, length);
  ip.set(L::checksum, ~sum & L::checksum.kMax);
}

/// Writes headers one after the other.
class Writer {
 public:
  explicit Writer(std::span<std::byte> out) : out_(out) {}

  template <class Layout, class Header>
  void put(const Header& header) {
    header.emit(util::MutableView<Layout>(out_.subspan(size_)));
    size_ += Layout::kSize;
  }
  std::uint8_t size() const { return static_cast<std::uint8_t>(size_); }

 private:
  std::span<std::byte> out_;
  std::size_t size_ = 0;
};

}  // namespace

IbHeader::IbHeader(const IbAddress& address) : trailer_(kIcrcSize) {
  Writer out(bytes_);
  if (address.is_ethernet()) {
    const bool v1 = address.encapsulation == Encapsulation::kRoceV1;
    const auto type = v1                  ? EtherType::kRoceV1
                      : address.is_ipv4() ? EtherType::kIpv4
                                          : EtherType::kIpv6;
    const auto outer_type = address.vlan_tci ? EtherType::kVlan : type;
    out.put<EthernetLayout>(Ethernet{address.destination_mac, address.source_mac, outer_type});
    if (address.vlan_tci) out.put<VlanLayout>(Vlan{*address.vlan_tci, type});
  } else {
    link_ = Link::kInfiniband;
    trailer_ += kVcrcSize;
    out.put<LrhLayout>(lrh_of(address));
  }
  network_offset_ = out.size();
  switch (address.encapsulation) {
    case Encapsulation::kRoceV2:
      assert(address.source_gid.is_ipv4() == address.is_ipv4() && "GIDs of two IP versions");
      if (address.is_ipv4()) {
        form_ = Form::kIpv4;
        out.put<Ipv4Layout>(ipv4_of(address));
        checksum_base_ = static_cast<std::uint16_t>(
            util::View<Ipv4Layout>(std::span(bytes_).subspan(network_offset_))
                .get(Ipv4Layout::checksum));
      } else {
        form_ = Form::kIpv6;
        out.put<Ipv6Layout>(ipv6_of(address));
      }
      // IBTA Annex A17 17.3.1.3: the ICRC protects the packet, so the UDP checksum is 0.
      out.put<UdpLayout>(Udp{address.udp_source_port, kRoceUdpPort, 0, 0});
      break;
    case Encapsulation::kRoceV1:
      form_ = Form::kGrh;
      out.put<GrhLayout>(grh_of(address));
      break;
    case Encapsulation::kLocal:
      form_ = Form::kLrh;
      break;
    case Encapsulation::kGlobal:
      form_ = Form::kLrhGrh;
      out.put<GrhLayout>(grh_of(address));
      break;
  }
  size_ = out.size();
}

/// `rest`: BTH, extended headers, payload, pad and ICRC.
[[gnu::noinline]] void IbHeader::set_lengths(std::size_t rest) {
  const auto head = std::span(bytes_);
  const auto network = head.subspan(network_offset_);
  const auto size = size_ - network_offset_ + rest;
  assert(size <= 0xffff);
  rest_ = rest;
  switch (form_) {
    case Form::kIpv4:
      set_ipv4_length(network, checksum_base_, static_cast<std::uint16_t>(size));
      util::MutableView<UdpLayout>(network.subspan(Ipv4Layout::kSize))
          .set(UdpLayout::length, static_cast<std::uint32_t>(size - Ipv4Layout::kSize));
      return;
    case Form::kIpv6: {
      const auto length = static_cast<std::uint32_t>(size - Ipv6Layout::kSize);
      util::MutableView<Ipv6Layout>(network).set(Ipv6Layout::payload_length, length);
      util::MutableView<UdpLayout>(network.subspan(Ipv6Layout::kSize))
          .set(UdpLayout::length, length);
      return;
    }
    case Form::kLrh:
    case Form::kLrhGrh:
      util::MutableView<LrhLayout>(head).set(
          LrhLayout::packet_length,
          static_cast<std::uint32_t>((LrhLayout::kSize + size) / spec::infiniband::kLrhLengthUnit));
      if (form_ == Form::kLrh) return;
      [[fallthrough]];
    case Form::kGrh:
      util::MutableView<GrhLayout>(network).set(
          GrhLayout::payload_length, static_cast<std::uint32_t>(size - GrhLayout::kSize));
  }
}

void IbHeader::emit(const Bth& bth, const ExtHeaders& ext, std::size_t payload_size, Frame& frame) {
  const auto& info = wire::info(bth.opcode);
  assert(info.defined && size_ != 0);
  const auto pad = pad_of(payload_size);
  const auto headers = BthLayout::kSize + info.headers_size;
  const auto head = frame.resize_head(size_ + headers);
  const auto tail = frame.resize_tail(pad + trailer_);
  if (const auto rest = headers + payload_size + pad + kIcrcSize; rest != rest_) set_lengths(rest);
  // More than there is, and fewer instructions: what is behind it is written below.
  static_assert(kCapacity + BthLayout::kSize <= Frame::kHeadCapacity);
  std::memcpy(head.data(), bytes_.data(), kCapacity);
  std::memset(tail.data(), 0, Frame::kTailCapacity);
  frame.set_link(link_);
  frame.set_transport_offset(size_);
  frame.set_icrc(Frame::Icrc::kDeferred);
  auto padded = bth;
  padded.pad_count = pad;
  padded.emit(util::MutableView<BthLayout>(head.subspan(size_)));
  const auto rest = emit_ext_headers(info, ext, head.subspan(size_ + BthLayout::kSize));
  assert(rest.empty());
  (void)rest;
}

}  // namespace softhca::wire
