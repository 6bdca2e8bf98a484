#include "ethernet/checksum_offload.h"

#include "wire/checksum.h"
#include "wire/ipv6.h"
#include "wire/tcp.h"
#include "wire/udp.h"

namespace softhca::ethernet {
namespace {

using wire::ChecksumSum;
using wire::Frame;

void add(ChecksumSum& sum, const Frame& frame, std::size_t offset, std::size_t size) {
  frame.for_each_piece(offset, size, [&](std::span<const std::byte> piece) { sum.add(piece); });
}

/// RFC 9293 3.1 and RFC 8200 8.1: addresses, length, protocol.
void add_pseudo_header(ChecksumSum& sum, const PacketInfo& info) {
  if (info.l3 == L3Type::kIpv4) {
    sum.add_u32(info.source_ip.to_ipv4());
    sum.add_u32(info.destination_ip.to_ipv4());
  } else {
    sum.add(info.source_ip.bytes);
    sum.add(info.destination_ip.bytes);
  }
  sum.add_u32(static_cast<std::uint32_t>(info.l4_size()));
  sum.add_u16(static_cast<std::uint16_t>(info.protocol));
}

/// @pre info.l3 == L3Type::kIpv4
bool ipv4_header_ok(const Frame& frame, const PacketInfo& info) {
  const auto header = frame.head().subspan(info.l3_offset);
  const auto size = wire::Ipv4View(header).get(wire::Ipv4Layout::ihl) * std::size_t{4};
  return wire::checksum_of(header.first(size)) == 0;
}

/// `l4_sum` is that of the L4 header and payload.
bool l4_ok(const Frame& frame, const PacketInfo& info, std::uint16_t l4_sum) {
  if (info.l4 == L4Type::kNone || info.source_routed) return false;
  if (info.l4 == L4Type::kUdp) {
    using L = wire::UdpLayout;
    const wire::UdpView udp(frame.head().subspan(info.l4_offset));
    // The sum covers what UDP says it has; if that is not all, software may judge.
    if (udp.get(L::length) != info.l4_size()) return false;
    // RFC 768: "An all zero transmitted checksum value means that the transmitter generated no
    // checksum". RFC 8200 8.1 does not allow it in IPv6.
    if (udp.get(L::checksum) == 0) return info.l3 == L3Type::kIpv4;
  }
  ChecksumSum sum;
  add_pseudo_header(sum, info);
  sum.add_u16(l4_sum);
  return sum.checksum() == 0;
}

}  // namespace

void insert_l3_checksum(Frame& frame, const PacketInfo& info) {
  using L = wire::Ipv4Layout;
  if (info.l3 != L3Type::kIpv4) return;
  const auto header = frame.head().subspan(info.l3_offset);
  const util::MutableView<L> ip(header);
  const auto size = ip.get(L::ihl) * std::size_t{4};
  ip.set(L::checksum, 0);
  ip.set(L::checksum, wire::checksum_of(header.first(size)));
}

void insert_l4_checksum(Frame& frame, const PacketInfo& info) {
  if (info.l4 == L4Type::kNone || info.source_routed) return;
  const bool is_tcp = info.l4 == L4Type::kTcp;
  const auto field = info.l4_offset +
                     (is_tcp ? wire::TcpLayout::kChecksumOffset : wire::UdpLayout::kChecksumOffset);
  auto* const at = frame.head().data() + field;
  util::store_be16(at, 0);
  ChecksumSum sum;
  add_pseudo_header(sum, info);
  add(sum, frame, info.l4_offset, info.l4_size());
  auto checksum = sum.checksum();
  // RFC 768: "If the computed checksum is zero, it is transmitted as all ones".
  if (!is_tcp && checksum == 0) checksum = 0xffff;
  util::store_be16(at, checksum);
}

ReceivedChecksum check(const Frame& frame, const PacketInfo& info) {
  ReceivedChecksum result;
  if (info.l3 == L3Type::kNone) return result;
  assert(frame.icrc() != Frame::Icrc::kDeferred);
  const std::size_t l3_end = info.l3_offset + info.l3_size;
  // In two parts, of which the second serves both sums. The first is a multiple of four bytes.
  const std::size_t cut = info.l4 != L4Type::kNone ? info.l4_offset : l3_end;
  ChecksumSum l4_sum;
  add(l4_sum, frame, cut, l3_end - cut);
  ChecksumSum sum;
  sum.add_u16(l4_sum.value());
  add(sum, frame, info.l3_offset, cut - info.l3_offset);
  result.sum = sum.value();
  result.l3_ok = info.l3_length_ok && (info.l3 == L3Type::kIpv6 || ipv4_header_ok(frame, info));
  result.l4_ok = l4_ok(frame, info, l4_sum.value());
  return result;
}

}  // namespace softhca::ethernet
