// The IPv4 header (RFC 791 3.1).
#pragma once

#include <optional>

#include "util/field.h"
#include "wire/checksum.h"

namespace softhca::wire {

enum class IpProtocol : std::uint8_t {
  kIcmp = 1,
  kTcp = 6,
  kUdp = 17,
  kIpv6Route = 43,
  kIpv6Fragment = 44,
  kEsp = 50,
  kAh = 51,
  kIcmpv6 = 58,
  kIpv6NoNext = 59,
  kIpv6DestinationOptions = 60,
  kIpv6HopByHop = 0,
};

struct Ipv4Layout {
  static constexpr std::size_t kSize = 20;
  template <std::size_t Offset, unsigned Hi, unsigned Lo>
  using Bits = util::Field<Ipv4Layout, util::ByteOrder::kBig, Offset, Hi, Lo>;
  static constexpr Bits<0, 31, 28> version{};
  static constexpr Bits<0, 27, 24> ihl{};
  static constexpr Bits<0, 23, 16> tos{};
  static constexpr Bits<0, 15, 0> total_length{};
  static constexpr Bits<4, 31, 16> identification{};
  static constexpr Bits<4, 14, 14> dont_fragment{};
  static constexpr Bits<4, 13, 13> more_fragments{};
  static constexpr Bits<4, 12, 0> fragment_offset{};
  static constexpr Bits<8, 31, 24> ttl{};
  static constexpr Bits<8, 23, 16> protocol{};
  static constexpr Bits<8, 15, 0> checksum{};
  static constexpr Bits<12, 31, 0> source{};
  static constexpr Bits<16, 31, 0> destination{};
};

using Ipv4View = util::View<Ipv4Layout>;

/// An IPv4 header without options.
struct Ipv4 {
  std::uint8_t tos = 0;  ///< DSCP (7:2) and ECN (1:0)
  std::uint16_t total_length = 0;
  std::uint16_t identification = 0;
  bool dont_fragment = false;
  bool more_fragments = false;
  std::uint16_t fragment_offset = 0;  ///< in units of 8 bytes
  std::uint8_t ttl = 0;
  IpProtocol protocol{};
  std::uint32_t source = 0;
  std::uint32_t destination = 0;

  bool is_fragment() const { return more_fragments || fragment_offset != 0; }

  /// Nothing if the version is not 4, or if the header has options, has a total length below its
  /// own size or fails its checksum.
  static std::optional<Ipv4> parse(Ipv4View view) {
    using L = Ipv4Layout;
    if (view.get(L::version) != 4 || view.get(L::ihl) != L::kSize / 4) return std::nullopt;
    if (view.get(L::total_length) < L::kSize) return std::nullopt;
    if (checksum_of(view.bytes()) != 0) return std::nullopt;
    Ipv4 ip;
    ip.tos = static_cast<std::uint8_t>(view.get(L::tos));
    ip.total_length = static_cast<std::uint16_t>(view.get(L::total_length));
    ip.identification = static_cast<std::uint16_t>(view.get(L::identification));
    ip.dont_fragment = view.get(L::dont_fragment) != 0;
    ip.more_fragments = view.get(L::more_fragments) != 0;
    ip.fragment_offset = static_cast<std::uint16_t>(view.get(L::fragment_offset));
    ip.ttl = static_cast<std::uint8_t>(view.get(L::ttl));
    ip.protocol = IpProtocol(view.get(L::protocol));
    ip.source = view.get(L::source);
    ip.destination = view.get(L::destination);
    return ip;
  }
  /// Also writes the checksum.
  void emit(util::MutableView<Ipv4Layout> out) const {
    using L = Ipv4Layout;
    std::memset(out.bytes().data(), 0, L::kSize);
    out.set(L::version, 4);
    out.set(L::ihl, L::kSize / 4);
    out.set(L::tos, tos);
    out.set(L::total_length, total_length);
    out.set(L::identification, identification);
    out.set(L::dont_fragment, dont_fragment);
    out.set(L::more_fragments, more_fragments);
    out.set(L::fragment_offset, fragment_offset);
    out.set(L::ttl, ttl);
    out.set(L::protocol, static_cast<std::uint32_t>(protocol));
    out.set(L::source, source);
    out.set(L::destination, destination);
    out.set(L::checksum, checksum_of(out.bytes()));
  }
  friend bool operator==(const Ipv4&, const Ipv4&) = default;
};

}  // namespace softhca::wire
