#include "ethernet/flow_headers.h"

#include <algorithm>
#include <array>
#include <cassert>

#include "ethernet/header_sum.h"
#include "ethernet/padding.h"
#include "util/endian.h"
#include "util/field.h"
#include "wire/ethernet.h"
#include "wire/ib_header.h"
#include "wire/ipv4.h"
#include "wire/ipv6.h"
#include "wire/tcp.h"
#include "wire/udp.h"
#include "wire/vlan.h"

namespace softhca::ethernet {
namespace {

static_assert(FlowHeaders::kSize <= wire::Frame::kHeadCapacity);

/// Bytes of both ports, with which L4 headers begin.
constexpr std::size_t kPorts = 4;

/// Bytes compared, up to a part of the L4 header: ports, and for TCP also data offset and flags.
std::size_t compared_size(const PacketInfo& packet) {
  constexpr std::size_t kFlagsEnd = 14;
  return packet.l4_offset + (packet.l4 == L4Type::kTcp ? kFlagsEnd : kPorts);
}

}  // namespace

bool FlowHeaders::can_be_cached(const PacketInfo& packet) {
  const bool roce = packet.l4 == L4Type::kUdp && packet.destination_port == wire::kRoceUdpPort;
  return packet.l4 != L4Type::kNone && packet.l3_length_ok && !roce &&
         packet.l4_offset + wire::TcpLayout::kSize <= kSize;
}

void FlowHeaders::remember(const wire::Frame& frame, const PacketInfo& packet, bool tcp_flags) {
  assert(can_be_cached(packet) && packet.l3_length_ok && !packet.ip.fragment);
  packet_ = packet;
  flow_ = wire::new_flow();
  headers_size_ = std::size_t{packet.l4_offset} + packet.l4_header_size;
  std::array<std::byte, kSize> mask{};
  const auto compared = std::span(mask).first(compared_size(packet));
  std::ranges::fill(compared, std::byte{0xFF});
  const auto l3 = std::span(mask).subspan(packet.l3_offset);
  const auto l4 = std::span(mask).subspan(packet.l4_offset);
  if (packet.l3 == L3Type::kIpv4) {
    using L = wire::Ipv4Layout;
    const util::MutableView<L> ip(l3);
    ip.set(L::total_length, 0);
    ip.set(L::identification, 0);
    ip.set(L::checksum, 0);
  } else {
    using L = wire::Ipv6Layout;
    util::MutableView<L>(l3).set(L::payload_length, 0);
  }
  if (packet.l4 == L4Type::kTcp) {
    using L = wire::TcpLayout;
    const util::MutableView<L> tcp(l4);
    tcp.set(L::sequence, 0);
    tcp.set(L::acknowledgment, 0);
    if (!tcp_flags) tcp.set(L::all_flags, 0);
  }
  bytes_.set(frame.head().first(compared.size()), compared);
  const std::size_t ip_header = packet.l4_offset - packet.l3_offset;
  l3_sum_ = sum_header(bytes_.value().subspan(packet.l3_offset, ip_header));
  const auto ports = bytes_.value().subspan(packet.l4_offset, kPorts);
  l4_sum_ = fold(std::uint64_t{packet.pseudo_sum} + sum_header(ports));
}

/// Bytes of the IP packet with its header, according to the header.
inline std::size_t FlowHeaders::ip_size(const wire::Frame& frame) const {
  const auto ip = std::span(frame.head_room()).subspan(packet_.l3_offset);
  if (packet_.l3 == L3Type::kIpv4) {
    return wire::Ipv4View(ip).get(wire::Ipv4Layout::total_length);
  }
  using L = wire::Ipv6Layout;
  return L::kSize + wire::Ipv6View(ip).get(L::payload_length);
}

/// Updates the fields that differ from packet to packet.
inline void FlowHeaders::note_packet(const wire::Frame& frame, std::size_t l3_size) {
  packet_.l3_size = l3_size;
  if (packet_.l4 != L4Type::kTcp) return;
  const wire::TcpView tcp(frame.head_room().subspan(packet_.l4_offset));
  packet_.tcp_flags = static_cast<std::uint16_t>(tcp.get(wire::TcpLayout::all_flags));
}

const PacketInfo* FlowHeaders::classify_fast(const wire::Frame& frame) {
  if (frame.head_size() < headers_size_ || !bytes_.match(frame.head_room().data())) return nullptr;
  const auto size = ip_size(frame);
  if (packet_.l3_offset + size > frame.size() || packet_.l3_offset + size < headers_size_) {
    return nullptr;
  }
  note_packet(frame, size);
  return &packet_;
}

bool FlowHeaders::finish(wire::Frame& frame) const {
  const auto head = frame.mutable_head();
  const auto payload = frame.segments()[0];
  const auto size = head.size() + payload.size();
  // Padding, or bytes behind the IP packet, take the slow path.
  if (!bytes_.match(head.data()) || packet_.l3_offset + ip_size(frame) != size ||
      size < kFrameSizeMin || packet_.ip.source_routed) {
    return false;
  }
  const auto l4 = head.subspan(packet_.l4_offset);
  const auto l4_size = size - packet_.l4_offset;
  std::uint64_t sum = l4_sum_ + l4_size;
  std::size_t field;
  std::uint16_t zero = 0;
  if (packet_.l4 == L4Type::kUdp) {
    using L = wire::UdpLayout;
    // A wrong UDP length takes the slow path.
    if (wire::UdpView(l4).get(L::length) != l4_size) return false;
    sum += l4_size;
    field = L::kChecksumOffset;
    // RFC 768: "If the computed checksum is zero, it is transmitted as all ones".
    zero = 0xffff;
  } else {
    field = wire::TcpLayout::kChecksumOffset;
    util::store_be16(l4.data() + field, 0);
    sum += add_words(l4.subspan(kPorts));
  }
  if (packet_.l3 == L3Type::kIpv4) {
    using L = wire::Ipv4Layout;
    const util::MutableView<L> ip(head.subspan(packet_.l3_offset));
    const auto rest = std::uint64_t{ip.get(L::total_length)} + ip.get(L::identification);
    ip.set(L::checksum, static_cast<std::uint16_t>(~fold(l3_sum_ + rest)));
  }
  frame.defer_checksum(
      {.sum = sum, .at = static_cast<std::uint16_t>(packet_.l4_offset + field), .zero = zero});
  frame.set_flow(flow_);
  return true;
}

const PacketInfo& FlowHeaders::classify_finished(const wire::Frame& frame) {
  note_packet(frame, frame.size() - packet_.l3_offset);
  return packet_;
}

std::size_t FlowHeaders::hash(const wire::Frame& frame) {
  using wire::EthernetLayout;
  const auto* const head = frame.head_room().data();
  // Behind a tag the IP header is four bytes further. With two tags the hash only spreads badly.
  std::size_t ip = EthernetLayout::kSize;
  auto type = wire::EtherType(util::load_be16(head + ip - sizeof(std::uint16_t)));
  if (type == wire::EtherType::kVlan || type == wire::EtherType::kServiceVlan) {
    ip += wire::VlanLayout::kSize;
    type = wire::EtherType(util::load_be16(head + ip - sizeof(std::uint16_t)));
  }
  // Both IPv4 addresses, or the end of an IPv6 address; then the ports.
  const auto l3_size =
      type == wire::EtherType::kIpv6 ? wire::Ipv6Layout::kSize : wire::Ipv4Layout::kSize;
  const auto addresses = ip + l3_size - sizeof(std::uint64_t);
  const auto words = util::load_le64(head + addresses);
  const auto ports = util::load_le32(head + addresses + sizeof(words));
  const auto mixed = (words ^ ports) * 0x9E3779B97F4A7C15u;
  return static_cast<std::size_t>(mixed >> 32);  // no format: a hash
}

}  // namespace softhca::ethernet
