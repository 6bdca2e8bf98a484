#include "ethernet/checksum_offload.h"

#include "ethernet/header_sum.h"
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

/// @pre info.l3 == L3Type::kIpv4
std::span<std::byte> ipv4_header(Frame& frame, const PacketInfo& info) {
  const auto header = frame.mutable_head().subspan(info.l3_offset);
  return header.first(wire::Ipv4View(header).get(wire::Ipv4Layout::ihl) * std::size_t{4});
}
std::span<const std::byte> ipv4_header(const Frame& frame, const PacketInfo& info) {
  const auto header = frame.head().subspan(info.l3_offset);
  return header.first(wire::Ipv4View(header).get(wire::Ipv4Layout::ihl) * std::size_t{4});
}

/// The sum of L4 header and payload, from their bytes.
std::uint16_t sum_l4_bytes(const Frame& frame, const PacketInfo& info) {
  ChecksumSum sum;
  const auto header = frame.head().subspan(info.l4_offset);
  const auto segments = frame.segments();
  if (segments.size() == 1 && header.size() % 4 == 0 &&
      header.size() + segments[0].size() == info.l4_size()) {
    // Fast path: the layout of frames that a send queue gathers.
    sum.add(segments[0]);
    return fold(std::uint64_t{sum_header(header)} + sum.value());
  }
  add(sum, frame, info.l4_offset, info.l4_size());
  return sum.value();
}

/// The sum of L4 header and payload. @pre info.l4 != L4Type::kNone
std::uint16_t sum_l4(const Frame& frame, const PacketInfo& info) {
  if (frame.checksum_made()) return sum_right_l4(info, info.l4_size());
  return sum_l4_bytes(frame, info);
}

/// True if the L4 checksum is correct. `l4_sum`: sum of L4 header and payload.
bool l4_ok(const Frame& frame, const PacketInfo& info, std::uint16_t l4_sum) {
  // An incomplete packet cannot be summed.
  if (info.ip.source_routed || !info.l3_length_ok) return false;
  if (info.l4 == L4Type::kUdp) {
    using L = wire::UdpLayout;
    const wire::UdpView udp(frame.head().subspan(info.l4_offset));
    // The sum covers the length in the UDP header; if that is not everything, software must check.
    if (udp.get(L::length) != info.l4_size()) return false;
    // RFC 768: "An all zero transmitted checksum value means that the transmitter generated no
    // checksum". RFC 8200 8.1 does not allow it in IPv6.
    if (udp.get(L::checksum) == 0) return info.l3 == L3Type::kIpv4;
  }
  return fold(std::uint64_t{sum_pseudo_header(info, info.l4_size())} + l4_sum) == 0xffff;
}

/// For a packet without L4: one sum of everything.
ReceivedChecksum check_l3(const Frame& frame, const PacketInfo& info) {
  ReceivedChecksum result;
  ChecksumSum sum;
  add(sum, frame, info.l3_offset, info.l3_size);
  result.sum = sum.value();
  const bool v4 = info.l3 == L3Type::kIpv4;
  result.l3_ok = info.l3_length_ok && (!v4 || sum_header(ipv4_header(frame, info)) == 0xffff);
  return result;
}

}  // namespace

void insert_l3_checksum(Frame& frame, const PacketInfo& info) {
  using L = wire::Ipv4Layout;
  if (info.l3 != L3Type::kIpv4) return;
  const auto header = ipv4_header(frame, info);
  const util::MutableView<L> ip(header);
  ip.set(L::checksum, 0);
  ip.set(L::checksum, static_cast<std::uint16_t>(~sum_header(header)));
}

void insert_l4_checksum(Frame& frame, const PacketInfo& info) {
  if (info.l4 == L4Type::kNone || info.ip.source_routed || !info.l3_length_ok) return;
  const bool is_tcp = info.l4 == L4Type::kTcp;
  const auto field = info.l4_offset +
                     (is_tcp ? wire::TcpLayout::kChecksumOffset : wire::UdpLayout::kChecksumOffset);
  auto* const at = frame.mutable_head().data() + field;
  util::store_be16(at, 0);
  const auto sum =
      std::uint64_t{sum_pseudo_header(info, info.l4_size())} + sum_l4_bytes(frame, info);
  auto checksum = static_cast<std::uint16_t>(~fold(sum));
  // RFC 768: "If the computed checksum is zero, it is transmitted as all ones".
  if (!is_tcp && checksum == 0) checksum = 0xffff;
  util::store_be16(at, checksum);
  frame.set_checksum_made();
}

ReceivedChecksum check(const Frame& frame, const PacketInfo& info) {
  if (info.l3 == L3Type::kNone) return {};
  assert(frame.icrc() != Frame::Icrc::kDeferred);
  if (info.l4 == L4Type::kNone) return check_l3(frame, info);
  // Two partial sums, each of which is used twice.
  const auto l4_sum = sum_l4(frame, info);
  const std::size_t l3_header = info.l4_offset - info.l3_offset;
  const auto l3_sum = sum_header(frame.head().subspan(info.l3_offset, l3_header));
  ReceivedChecksum result;
  result.sum = fold(std::uint64_t{l4_sum} + l3_sum);
  result.l3_ok = info.l3_length_ok && (info.l3 == L3Type::kIpv6 || l3_sum == 0xffff);
  result.l4_ok = l4_ok(frame, info, l4_sum);
  return result;
}

}  // namespace softhca::ethernet
