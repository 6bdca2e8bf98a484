#include "wire/ib_header.h"

#include <cstring>

#include "wire/icrc.h"
#include "wire/lrh.h"
#include "wire/vcrc.h"

namespace softhca::wire {
namespace {

void emit_ext_headers(const OpcodeInfo& info, const ExtHeaders& ext, std::span<std::byte> out) {
  const auto put = [&]<class Layout>(ExtHeader which, const auto& header, Layout) {
    if (!info.has(which)) return;
    header.emit(util::MutableView<Layout>(out));
    out = out.subspan(Layout::kSize);
  };
  put(ExtHeader::kDeth, ext.deth, DethLayout{});
  put(ExtHeader::kXrcEth, ext.xrceth, XrcEthLayout{});
  put(ExtHeader::kDcEth, ext.dceth, DcEthLayout{});
  put(ExtHeader::kReth, ext.reth, RethLayout{});
  put(ExtHeader::kAtomicEth, ext.atomic, AtomicEthLayout{});
  put(ExtHeader::kAeth, ext.aeth, AethLayout{});
  put(ExtHeader::kAtomicAckEth, ext.atomic_ack, AtomicAckEthLayout{});
  put(ExtHeader::kImmDt, ext.immdt, ImmDtLayout{});
  put(ExtHeader::kIeth, ext.ieth, IethLayout{});
}

/// With a length of 0, the header's checksum covers all constant fields.
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

/// `base`: the header's checksum with a length of 0 (RFC 1624 3).
[[gnu::always_inline]] inline void set_ipv4_length(std::span<std::byte> header, std::uint16_t base,
                                                   std::uint16_t length) {
  using L = Ipv4Layout;
  const util::MutableView<L> ip(header);
  std::uint32_t sum = (~std::uint32_t{base} & L::checksum.kMax) + length;
  sum = (sum & 0xffff) + (sum >> 16);
  ip.set(L::total_length, length);
  ip.set(L::checksum, ~sum & L::checksum.kMax);
}

/// `rest`: bytes of BTH, extended headers, payload, pad and ICRC.
void set_lengths(const PathHeaders& path, std::size_t rest, std::span<std::byte> head) {
  const auto network = head.subspan(path.network_offset);
  const auto size = path.size - path.network_offset + rest;
  assert(size <= 0xffff);
  switch (path.form) {
    case PathHeaders::Form::kIpv4:
      set_ipv4_length(network, path.checksum_base, static_cast<std::uint16_t>(size));
      util::MutableView<UdpLayout>(network.subspan(Ipv4Layout::kSize))
          .set(UdpLayout::length, static_cast<std::uint32_t>(size - Ipv4Layout::kSize));
      return;
    case PathHeaders::Form::kIpv6: {
      const auto length = static_cast<std::uint32_t>(size - Ipv6Layout::kSize);
      util::MutableView<Ipv6Layout>(network).set(Ipv6Layout::payload_length, length);
      util::MutableView<UdpLayout>(network.subspan(Ipv6Layout::kSize))
          .set(UdpLayout::length, length);
      return;
    }
    case PathHeaders::Form::kLrh:
    case PathHeaders::Form::kLrhGrh:
      util::MutableView<LrhLayout>(head).set(
          LrhLayout::packet_length,
          static_cast<std::uint32_t>((LrhLayout::kSize + size) / spec::infiniband::kLrhLengthUnit));
      if (path.form == PathHeaders::Form::kLrh) return;
      [[fallthrough]];
    case PathHeaders::Form::kGrh:
      util::MutableView<GrhLayout>(network).set(
          GrhLayout::payload_length, static_cast<std::uint32_t>(size - GrhLayout::kSize));
  }
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

void write_ipv4(const PathHeaders& path, std::span<const std::byte> head, std::size_t length,
                std::span<std::byte> out) {
  SOFTHCA_HOT_ASSERT(path.form == PathHeaders::Form::kIpv4);
  std::memcpy(out.data(), head.data() + path.network_offset, Ipv4Layout::kSize);
  set_ipv4_length(out, path.checksum_base, static_cast<std::uint16_t>(length));
}

void write_headers(const PathHeaders& path, const TransportHeaders& headers, std::size_t rest,
                   std::span<std::byte> head) {
  set_lengths(path, rest, head);
  const auto transport = head.subspan(path.size);
  headers.bth.emit(util::MutableView<BthLayout>(transport));
  emit_ext_headers(info(headers.bth.opcode), headers.ext, transport.subspan(BthLayout::kSize));
}

IbHeader::IbHeader(const IbAddress& address) : trailer_(kIcrcSize) {
  path_.flow = new_flow();
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
  path_.network_offset = out.size();
  switch (address.encapsulation) {
    case Encapsulation::kRoceV2:
      assert(address.source_gid.is_ipv4() == address.is_ipv4() && "GIDs of two IP versions");
      if (address.is_ipv4()) {
        path_.form = PathHeaders::Form::kIpv4;
        out.put<Ipv4Layout>(ipv4_of(address));
        path_.checksum_base = static_cast<std::uint16_t>(
            util::View<Ipv4Layout>(std::span(bytes_).subspan(path_.network_offset))
                .get(Ipv4Layout::checksum));
      } else {
        path_.form = PathHeaders::Form::kIpv6;
        out.put<Ipv6Layout>(ipv6_of(address));
      }
      // IBTA Annex A17 17.3.1.3: the ICRC protects the packet, so the UDP checksum is 0.
      out.put<UdpLayout>(Udp{address.udp_source_port, kRoceUdpPort, 0, 0});
      break;
    case Encapsulation::kRoceV1:
      path_.form = PathHeaders::Form::kGrh;
      out.put<GrhLayout>(grh_of(address));
      break;
    case Encapsulation::kLocal:
      path_.form = PathHeaders::Form::kLrh;
      break;
    case Encapsulation::kGlobal:
      path_.form = PathHeaders::Form::kLrhGrh;
      out.put<GrhLayout>(grh_of(address));
      break;
  }
  path_.size = out.size();
}

void IbHeader::emit(const Bth& bth, const ExtHeaders& ext, std::size_t payload_size,
                    Frame& frame) const {
  auto& headers = begin(bth.opcode, payload_size, frame);
  const auto pad = headers.bth.pad_count;
  headers = {bth, ext};
  headers.bth.pad_count = pad;
}

}  // namespace softhca::wire
