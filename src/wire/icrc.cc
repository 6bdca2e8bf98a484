#include "wire/icrc.h"

#include <isa-l/crc.h>

#include <array>

#include "wire/bth.h"
#include "wire/ethernet.h"
#include "wire/ipv6.h"
#include "wire/udp.h"
#include "wire/vlan.h"

namespace softhca::wire {
namespace {

constexpr std::size_t kTransportSize = UdpLayout::kSize + BthLayout::kSize;
/// IBTA Annex A17 17.3.3: eight bytes of ones stand for the local route header.
constexpr std::size_t kDummyLrhSize = 8;

template <class Layout, class... Fields>
void mask(std::span<std::byte> header, Fields... fields) {
  const util::MutableView<Layout> view(header);
  (view.set(fields, Fields::kMax), ...);
}

std::uint32_t crc32(std::uint32_t crc, std::span<const std::byte> bytes) {
  return crc32_gzip_refl(crc, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
}

/// Sets all that may change on the way to ones. IBTA Annex A17 17.3.3.
void mask_headers(std::span<std::byte> headers, bool is_ipv4) {
  std::size_t size;
  if (is_ipv4) {
    using L = Ipv4Layout;
    mask<L>(headers, L::tos, L::ttl, L::checksum);
    size = L::kSize;
  } else {
    using L = Ipv6Layout;
    mask<L>(headers, L::traffic_class, L::flow_label, L::hop_limit);
    size = L::kSize;
  }
  mask<UdpLayout>(headers.subspan(size), UdpLayout::checksum);
  mask<BthLayout>(headers.subspan(size + UdpLayout::kSize), kBthResv8a);
}

}  // namespace

std::optional<std::size_t> find_roce_network_header(std::span<const std::byte> head) {
  if (head.size() < EthernetLayout::kSize) return std::nullopt;
  std::size_t offset = EthernetLayout::kSize;
  auto type = EtherType(EthernetView(head).get(EthernetLayout::ether_type));
  if (type == EtherType::kVlan) {
    if (head.size() < offset + VlanLayout::kSize) return std::nullopt;
    type = EtherType(VlanView(head.subspan(offset)).get(VlanLayout::ether_type));
    offset += VlanLayout::kSize;
  }
  if (type != EtherType::kIpv4 && type != EtherType::kIpv6) return std::nullopt;
  const auto ip = type == EtherType::kIpv4 ? Ipv4Layout::kSize : Ipv6Layout::kSize;
  if (head.size() < offset + ip + kTransportSize) return std::nullopt;
  return offset;
}

std::uint32_t icrc_of(const Frame& frame, std::size_t network_offset, std::size_t end) {
  std::array<std::byte, kDummyLrhSize + Ipv6Layout::kSize + kTransportSize> masked;
  std::memset(masked.data(), 0xff, kDummyLrhSize);
  const auto network = frame.head().subspan(network_offset);
  const bool is_ipv4 = Ipv4View(network).get(Ipv4Layout::version) == 4;
  const auto size = kTransportSize + (is_ipv4 ? Ipv4Layout::kSize : Ipv6Layout::kSize);
  assert(network.size() >= size);
  const auto headers = std::span(masked).subspan(kDummyLrhSize, size);
  std::memcpy(headers.data(), network.data(), size);
  mask_headers(headers, is_ipv4);

  auto crc = crc32(0, std::span(masked).first(kDummyLrhSize + size));
  const auto rest = network_offset + size;
  assert(end >= rest);
  frame.for_each_piece(rest, end - rest,
                       [&](std::span<const std::byte> piece) { crc = crc32(crc, piece); });
  return crc;
}

}  // namespace softhca::wire
