#include "ethernet/known_header.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "util/endian.h"
#include "wire/ethernet.h"
#include "wire/ib_header.h"
#include "wire/ipv4.h"
#include "wire/ipv6.h"
#include "wire/tcp.h"
#include "wire/udp.h"
#include "wire/vlan.h"

namespace softhca::ethernet {
namespace {

static_assert(KnownHeader::kSize <= wire::Frame::kHeadCapacity);

/// Of the L4 header: ports, and of TCP data offset and flags.
std::size_t compared_size(const PacketInfo& packet) {
  constexpr std::size_t kPorts = 4;
  constexpr std::size_t kFlagsEnd = 14;
  return packet.l4_offset + (packet.l4 == L4Type::kTcp ? kFlagsEnd : kPorts);
}

}  // namespace

bool KnownHeader::can_be_known(const PacketInfo& packet) {
  const bool roce = packet.l4 == L4Type::kUdp && packet.destination_port == wire::kRoceUdpPort;
  return packet.l4 != L4Type::kNone && !roce && packet.l4_offset + wire::TcpLayout::kSize <= kSize;
}

template <class Layout>
util::MutableView<Layout> KnownHeader::mask(std::size_t offset) {
  return util::MutableView<Layout>(std::as_writable_bytes(std::span(mask_)).subspan(offset));
}

void KnownHeader::remember(const wire::Frame& frame, const PacketInfo& packet, bool tcp_flags) {
  assert(can_be_known(packet) && packet.l3_length_ok && !packet.fragment);
  packet_ = packet;
  headers_size_ = std::size_t{packet.l4_offset} + packet.l4_header_size;
  const auto size = compared_size(packet);
  words_ = (size + sizeof(std::uint64_t) - 1) / sizeof(std::uint64_t);
  value_ = {};
  std::memcpy(value_.data(), frame.head().data(), size);
  mask_ = {};
  std::memset(mask_.data(), 0xFF, size);
  if (packet.l3 == L3Type::kIpv4) {
    using L = wire::Ipv4Layout;
    const auto ip = mask<L>(packet.l3_offset);
    ip.set(L::total_length, 0);
    ip.set(L::identification, 0);
    ip.set(L::checksum, 0);
  } else {
    using L = wire::Ipv6Layout;
    mask<L>(packet.l3_offset).set(L::payload_length, 0);
  }
  if (packet.l4 != L4Type::kTcp) return;
  using L = wire::TcpLayout;
  const auto tcp = mask<L>(packet.l4_offset);
  tcp.set(L::sequence, 0);
  tcp.set(L::acknowledgment, 0);
  if (!tcp_flags) tcp.set(L::all_flags, 0);
}

/// What the IP header says, with itself.
inline std::size_t KnownHeader::ip_size(const wire::Frame& frame) const {
  const auto ip = std::span(frame.head_room()).subspan(packet_.l3_offset);
  if (packet_.l3 == L3Type::kIpv4) {
    return wire::Ipv4View(ip).get(wire::Ipv4Layout::total_length);
  }
  using L = wire::Ipv6Layout;
  return L::kSize + wire::Ipv6View(ip).get(L::payload_length);
}

const PacketInfo* KnownHeader::parse(const wire::Frame& frame) {
  if (frame.head().size() < headers_size_) return nullptr;
  const auto* const head = frame.head_room().data();
  std::uint64_t differs = 0;
  for (std::size_t i = 0; i != words_; ++i) {
    std::uint64_t word;
    std::memcpy(&word, head + i * sizeof(word), sizeof(word));
    differs |= (word ^ value_[i]) & mask_[i];
  }
  if (differs != 0) return nullptr;
  const auto size = ip_size(frame);
  if (packet_.l3_offset + size > frame.size() || packet_.l3_offset + size < headers_size_) {
    return nullptr;
  }
  packet_.l3_size = size;
  if (packet_.l4 == L4Type::kTcp) {
    const wire::TcpView tcp(std::span(head + packet_.l4_offset, wire::TcpLayout::kSize));
    packet_.tcp_flags = static_cast<std::uint16_t>(tcp.get(wire::TcpLayout::all_flags));
  }
  return &packet_;
}

std::size_t KnownHeader::hash(const wire::Frame& frame) {
  using wire::EthernetLayout;
  const auto* const head = frame.head_room().data();
  // Behind a tag an IP header stands four bytes further; where that is not so, it is a bad hash.
  std::size_t ip = EthernetLayout::kSize;
  auto type = wire::EtherType(util::load_be16(head + ip - sizeof(std::uint16_t)));
  if (type == wire::EtherType::kVlan || type == wire::EtherType::kServiceVlan) {
    ip += wire::VlanLayout::kSize;
    type = wire::EtherType(util::load_be16(head + ip - sizeof(std::uint16_t)));
  }
  // Both IPv4 addresses, or the end of an IPv6 one; then ports.
  const auto l3_size =
      type == wire::EtherType::kIpv6 ? wire::Ipv6Layout::kSize : wire::Ipv4Layout::kSize;
  const auto addresses = ip + l3_size - sizeof(std::uint64_t);
  const auto words = util::load_le64(head + addresses);
  const auto ports = util::load_le32(head + addresses + sizeof(words));
  const auto mixed = (words ^ ports) * 0x9E3779B97F4A7C15u;
  return static_cast<std::size_t>(mixed >> 32);  // no format: a hash
}

}  // namespace softhca::ethernet
