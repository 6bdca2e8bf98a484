#include "wire/roce_datagram.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "util/endian.h"
#include "wire/bth.h"
#include "wire/ethernet.h"
#include "wire/ib_header.h"
#include "wire/ib_packet.h"
#include "wire/icrc_sum.h"
#include "wire/ipv4.h"
#include "wire/ipv6.h"
#include "wire/opcode.h"
#include "wire/udp.h"

namespace softhca::wire {
namespace {

using Error = DatagramError;
/// Bytes of an IPv4 header up to the identification's end.
constexpr std::size_t kBeforeIdentification = Ipv4Layout::identification.kOffset + 2;

using Headers = std::array<std::byte, Ipv6Layout::kSize + UdpLayout::kSize + BthLayout::kSize>;

/// The position of a packet in its frame.
struct Place {
  std::size_t network = 0;  ///< of the IP header
  std::size_t end = 0;      ///< of the ICRC
  NetworkHeader header{};
};

tl::expected<Place, Error> find_packet(const Frame& frame) {
  // Headers that are values need no checks: this process has written them.
  if (frame.has_values()) {
    const auto& path = frame.path();
    const bool is_ipv4 = path.form == PathHeaders::Form::kIpv4;
    if (!is_ipv4 && path.form != PathHeaders::Form::kIpv6) return tl::unexpected(Error::kOther);
    return Place{path.network_offset, frame.size(),
                 is_ipv4 ? NetworkHeader::kIpv4 : NetworkHeader::kIpv6};
  }
  const auto packet = IbPacket::parse(frame);
  if (!packet) {
    const bool is_corrupt = packet.error() == PacketError::kIcrc;
    return tl::unexpected(is_corrupt ? Error::kIcrc : Error::kOther);
  }
  if (packet->address.encapsulation != Encapsulation::kRoceV2) {
    return tl::unexpected(Error::kOther);
  }
  const auto end =
      packet->payload_offset + packet->payload_size + packet->bth.pad_count + kIcrcSize;
  return Place{packet->network_offset, end, network_header(packet->address)};
}

/// Reads the path of an outgoing packet, and makes its headers those that the kernel will write.
DatagramPath take_path(NetworkHeader header, std::span<std::byte> headers,
                       std::uint16_t source_port, std::uint16_t identification) {
  DatagramPath path;
  path.source_port = source_port;
  path.identification = identification;
  if (header == NetworkHeader::kIpv4) {
    using L = Ipv4Layout;
    const util::MutableView<L> ip(headers);
    path.source = Gid::from_ipv4(ip.get(L::source));
    path.destination = Gid::from_ipv4(ip.get(L::destination));
    path.traffic_class = static_cast<std::uint8_t>(ip.get(L::tos));
    path.hop_limit = static_cast<std::uint8_t>(ip.get(L::ttl));
    ip.set(L::identification, identification);
    ip.set(L::dont_fragment, 1);
  } else {
    using L = Ipv6Layout;
    const util::View<L> ip(headers);
    path.source = Gid::from(ip.get(L::source));
    path.destination = Gid::from(ip.get(L::destination));
    path.traffic_class = static_cast<std::uint8_t>(ip.get(L::traffic_class));
    path.hop_limit = static_cast<std::uint8_t>(ip.get(L::hop_limit));
  }
  const auto udp = masked_size(header) - BthLayout::kSize - UdpLayout::kSize;
  util::MutableView<UdpLayout>(headers.subspan(udp)).set(UdpLayout::source_port, source_port);
  return path;
}

/// Writes the IP and UDP headers of a received datagram of `size` bytes to `out`. Returns their
/// bytes. @pre the path is of one IP version
std::size_t put_headers(const DatagramPath& path, std::size_t size, std::span<std::byte> out) {
  const auto udp_size = static_cast<std::uint16_t>(UdpLayout::kSize + size);
  std::size_t at = 0;
  if (path.destination.is_ipv4()) {
    Ipv4 ip;
    ip.tos = path.traffic_class;
    ip.total_length = static_cast<std::uint16_t>(Ipv4Layout::kSize + udp_size);
    ip.identification = path.identification;
    ip.dont_fragment = true;
    ip.ttl = path.hop_limit;
    ip.protocol = IpProtocol::kUdp;
    ip.source = path.source.to_ipv4();
    ip.destination = path.destination.to_ipv4();
    ip.emit(util::MutableView<Ipv4Layout>(out));
    at = Ipv4Layout::kSize;
  } else {
    Ipv6 ip;
    ip.traffic_class = path.traffic_class;
    ip.payload_length = udp_size;
    ip.next_header = IpProtocol::kUdp;
    ip.hop_limit = path.hop_limit;
    ip.source = path.source;
    ip.destination = path.destination;
    ip.emit(util::MutableView<Ipv6Layout>(out));
    at = Ipv6Layout::kSize;
  }
  Udp{path.source_port, kRoceUdpPort, udp_size, 0}.emit(
      util::MutableView<UdpLayout>(out.subspan(at)));
  return at + UdpLayout::kSize;
}

void set_identification(std::span<std::byte> header, std::uint16_t identification) {
  using L = Ipv4Layout;
  const util::MutableView<L> ip(header);
  ip.set(L::identification, identification);
  ip.set(L::checksum, 0);
  ip.set(L::checksum, checksum_of(header.first(L::kSize)));
}

}  // namespace

std::string_view to_string(DatagramError error) {
  switch (error) {
    case Error::kOther:
      return "no RoCEv2 packet";
    case Error::kLength:
      return "no length of a RoCEv2 packet";
    case Error::kAddress:
      return "addresses of two IP versions";
    case Error::kIcrc:
      return "ICRC does not match";
  }
  return "";
}

tl::expected<void, Error> RoceDatagram::make(const Frame& frame, std::uint16_t source_port,
                                             std::uint16_t identification) {
  assert(frame.packets() == 1);
  const auto place = find_packet(frame);
  if (!place) return tl::unexpected(place.error());
  const auto size_of_headers = masked_size(place->header);
  Headers bytes;
  const auto headers = std::span(bytes).first(size_of_headers);
  std::memcpy(headers.data(), frame.head().data() + place->network, headers.size());
  path = take_path(place->header, headers, source_port, identification);

  auto icrc = begin_icrc(headers, place->header);
  const auto payload = place->network + size_of_headers;  // with extended headers before it
  const auto bth = payload - BthLayout::kSize;
  part_count = 0;
  parts[part_count++] = frame.head().subspan(bth, BthLayout::kSize);
  frame.for_each_piece(payload, place->end - kIcrcSize - payload,
                       [&](std::span<const std::byte> piece) {
                         icrc = add_to_icrc(icrc, piece);
                         auto& last = parts[part_count - 1];
                         if (last.data() + last.size() == piece.data()) {
                           last = {last.data(), last.size() + piece.size()};
                         } else {
                           parts[part_count++] = piece;
                         }
                       });
  util::store_le32(icrc_.data(), icrc);
  parts[part_count++] = icrc_;
  size = place->end - bth;
  return {};
}

std::array<std::byte, kIcrcSize> RoceDatagram::icrc_alone() const {
  auto icrc = icrc_;
  if (path.identification != 0 && path.destination.is_ipv4()) {
    const auto behind =
        Ipv4Layout::kSize + UdpLayout::kSize - kBeforeIdentification + size - kIcrcSize;
    util::store_le32(icrc.data(),
                     util::load_le32(icrc.data()) ^ icrc_change(path.identification, behind));
  }
  return icrc;
}

tl::expected<void, Error> DatagramReader::read(std::span<const std::byte> datagram,
                                               const DatagramPath& path, Frame& frame) {
  if (datagram.size() < BthLayout::kSize + kIcrcSize || datagram.size() > kDatagramMax) {
    return tl::unexpected(Error::kLength);
  }
  const bool is_ipv4 = path.destination.is_ipv4();
  if (path.source.is_ipv4() != is_ipv4) return tl::unexpected(Error::kAddress);
  const auto covered = datagram.first(datagram.size() - kIcrcSize);
  // The opcode's headers belong to the head. The device refuses unknown opcodes later.
  const auto& opcode = info(Opcode(std::to_integer<std::uint8_t>(datagram.front())));
  const auto in_head = std::min(covered.size(), BthLayout::kSize + opcode.headers_size);

  frame.clear();
  const auto network_size = (is_ipv4 ? Ipv4Layout::kSize : Ipv6Layout::kSize) + UdpLayout::kSize;
  const auto head = frame.resize_head(EthernetLayout::kSize + network_size + in_head);
  const auto type = is_ipv4 ? EtherType::kIpv4 : EtherType::kIpv6;
  Ethernet{destination_, source_, type}.emit(util::MutableView<EthernetLayout>(head));
  const auto network = head.subspan(EthernetLayout::kSize);
  (void)put_headers(path, datagram.size(), network);
  std::memcpy(network.data() + network_size, covered.data(), in_head);

  const auto header = is_ipv4 ? NetworkHeader::kIpv4 : NetworkHeader::kIpv6;
  const auto masked = network.first(masked_size(header));
  const auto icrc = add_to_icrc(begin_icrc(masked, header), covered.subspan(BthLayout::kSize));
  const auto difference = icrc ^ util::load_le32(datagram.last(kIcrcSize).data());
  if (difference != 0) {
    if (!is_ipv4) return tl::unexpected(Error::kIcrc);
    const auto behind = network_size - kBeforeIdentification + covered.size();
    const auto found = identification_.find(difference, behind);
    if (!found) return tl::unexpected(Error::kIcrc);
    set_identification(network, *found ^ path.identification);
  }
  (void)frame.add_segment(covered.subspan(in_head));
  std::memcpy(frame.resize_tail(kIcrcSize).data(), datagram.last(kIcrcSize).data(), kIcrcSize);
  frame.set_icrc(Frame::Icrc::kDeferred);
  return {};
}

}  // namespace softhca::wire
