#include "wire/icrc.h"

#include <isa-l/crc.h>

#include <array>

#include "wire/bth.h"
#include "wire/ethernet.h"
#include "wire/grh.h"
#include "wire/icrc_sum.h"
#include "wire/ipv4.h"
#include "wire/ipv6.h"
#include "wire/lrh.h"
#include "wire/udp.h"
#include "wire/vlan.h"

namespace softhca::wire {
namespace {

template <class Layout, class... Fields>
void mask(std::span<std::byte> header, Fields... fields) {
  const util::MutableView<Layout> view(header);
  (view.set(fields, Fields::kMax), ...);
}

std::uint32_t crc32(std::uint32_t crc, std::span<const std::byte> bytes) {
  return crc32_gzip_refl(crc, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
}

/// Bytes of the masked header, and of those between it and the BTH.
constexpr std::size_t size_of(NetworkHeader header) {
  switch (header) {
    case NetworkHeader::kIpv4:
      return Ipv4Layout::kSize + UdpLayout::kSize;
    case NetworkHeader::kIpv6:
      return Ipv6Layout::kSize + UdpLayout::kSize;
    case NetworkHeader::kGrh:
      return GrhLayout::kSize;
    case NetworkHeader::kLrh:
      break;
  }
  return 0;
}

/// Sets all variant fields to ones: IBTA 7.8.1, Annex A17 17.3.3.
void mask_network(std::span<std::byte> headers, NetworkHeader header) {
  switch (header) {
    case NetworkHeader::kIpv4:
      mask<Ipv4Layout>(headers, Ipv4Layout::tos, Ipv4Layout::ttl, Ipv4Layout::checksum);
      return mask<UdpLayout>(headers.subspan(Ipv4Layout::kSize), UdpLayout::checksum);
    case NetworkHeader::kIpv6:
      mask<Ipv6Layout>(headers, Ipv6Layout::traffic_class, Ipv6Layout::flow_label,
                       Ipv6Layout::hop_limit);
      return mask<UdpLayout>(headers.subspan(Ipv6Layout::kSize), UdpLayout::checksum);
    case NetworkHeader::kGrh:
      return mask<GrhLayout>(headers, GrhLayout::traffic_class, GrhLayout::flow_label,
                             GrhLayout::hop_limit);
    case NetworkHeader::kLrh:
      return;
  }
}

/// Finds the start behind the Ethernet header and at most one 802.1Q tag.
std::optional<IcrcStart> find_in_ethernet(std::span<const std::byte> head) {
  if (head.size() < EthernetLayout::kSize) return std::nullopt;
  std::size_t offset = EthernetLayout::kSize;
  auto type = EtherType(EthernetView(head).get(EthernetLayout::ether_type));
  if (type == EtherType::kVlan) {
    if (head.size() < offset + VlanLayout::kSize) return std::nullopt;
    type = EtherType(VlanView(head.subspan(offset)).get(VlanLayout::ether_type));
    offset += VlanLayout::kSize;
  }
  switch (type) {
    case EtherType::kIpv4:
      return IcrcStart{offset, NetworkHeader::kIpv4};
    case EtherType::kIpv6:
      return IcrcStart{offset, NetworkHeader::kIpv6};
    case EtherType::kRoceV1:
      return IcrcStart{offset, NetworkHeader::kGrh};
    default:
      return std::nullopt;
  }
}

std::optional<IcrcStart> find_in_infiniband(std::span<const std::byte> head) {
  if (head.size() < LrhLayout::kSize) return std::nullopt;
  switch (Lrh::parse(LrhView(head)).next_header) {
    case LrhNextHeader::IBA_LOCAL:
      return IcrcStart{LrhLayout::kSize, NetworkHeader::kLrh};
    case LrhNextHeader::IBA_GLOBAL:
      return IcrcStart{LrhLayout::kSize, NetworkHeader::kGrh};
    default:
      return std::nullopt;
  }
}

}  // namespace

std::optional<IcrcStart> find_icrc_start(const Frame& frame) {
  const auto head = frame.head();
  const auto start =
      frame.link() == Link::kEthernet ? find_in_ethernet(head) : find_in_infiniband(head);
  if (!start || head.size() < start->offset + size_of(start->header) + BthLayout::kSize) {
    return std::nullopt;
  }
  return start;
}

std::size_t masked_size(NetworkHeader header) { return size_of(header) + BthLayout::kSize; }

std::uint32_t add_to_icrc(std::uint32_t icrc, std::span<const std::byte> bytes) {
  return crc32(icrc, bytes);
}

namespace {

/// `headers`: from the masked header to the end of the BTH. `local`: the LRH of a local packet.
std::uint32_t begin(std::span<const std::byte> headers, NetworkHeader header,
                    std::span<const std::byte> local) {
  constexpr auto kSizeMax =
      LrhLayout::kSize + Ipv6Layout::kSize + UdpLayout::kSize + BthLayout::kSize;
  std::array<std::byte, kSizeMax> masked;
  const auto lrh = std::span(masked).first(LrhLayout::kSize);
  if (header == NetworkHeader::kLrh) {
    std::memcpy(lrh.data(), local.data(), lrh.size());
    mask<LrhLayout>(lrh, LrhLayout::virtual_lane);
  } else {
    // A router replaces the LRH of a global packet, so the ICRC does not cover it: eight bytes of
    // ones replace it, also if there is no LRH (Annex A17 17.3.3).
    std::memset(lrh.data(), 0xff, lrh.size());
  }
  const auto copy = std::span(masked).subspan(lrh.size(), headers.size());
  std::memcpy(copy.data(), headers.data(), headers.size());
  mask_network(copy, header);
  mask<BthLayout>(copy.subspan(size_of(header)), kBthResv8a);
  return crc32(0, std::span(masked).first(lrh.size() + headers.size()));
}

}  // namespace

std::uint32_t begin_icrc(std::span<const std::byte> headers, NetworkHeader header) {
  assert(header != NetworkHeader::kLrh && headers.size() == masked_size(header));
  return begin(headers, header, {});
}

std::uint32_t icrc_of(const Frame& frame, IcrcStart start, std::size_t end) {
  const auto size = masked_size(start.header);
  assert(frame.head().size() >= start.offset + size);
  auto crc = begin(frame.head().subspan(start.offset, size), start.header, frame.head());
  const auto rest = start.offset + size;
  assert(end >= rest);
  frame.for_each_piece(rest, end - rest,
                       [&](std::span<const std::byte> piece) { crc = crc32(crc, piece); });
  return crc;
}

}  // namespace softhca::wire
