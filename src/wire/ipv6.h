// The IPv6 header (RFC 8200 3).
#pragma once

#include <optional>

#include "util/field.h"
#include "wire/gid.h"
#include "wire/ipv4.h"

namespace softhca::wire {

struct Ipv6Layout {
  static constexpr std::size_t kSize = 40;
  template <std::size_t Offset, unsigned Hi, unsigned Lo>
  using Bits = util::Field<Ipv6Layout, util::ByteOrder::kBig, Offset, Hi, Lo>;
  static constexpr Bits<0, 31, 28> version{};
  static constexpr Bits<0, 27, 20> traffic_class{};
  static constexpr Bits<0, 19, 0> flow_label{};
  static constexpr Bits<4, 31, 16> payload_length{};
  static constexpr Bits<4, 15, 8> next_header{};
  static constexpr Bits<4, 7, 0> hop_limit{};
  static constexpr util::ByteField<Ipv6Layout, 8, 16> source{};
  static constexpr util::ByteField<Ipv6Layout, 24, 16> destination{};
};

using Ipv6View = util::View<Ipv6Layout>;

struct Ipv6 {
  std::uint8_t traffic_class = 0;
  std::uint32_t flow_label = 0;
  std::uint16_t payload_length = 0;  ///< bytes behind this header
  IpProtocol next_header{};
  std::uint8_t hop_limit = 0;
  Gid source;
  Gid destination;

  /// Nothing if it is not version 6.
  static std::optional<Ipv6> parse(Ipv6View view) {
    using L = Ipv6Layout;
    if (view.get(L::version) != 6) return std::nullopt;
    Ipv6 ip;
    ip.traffic_class = static_cast<std::uint8_t>(view.get(L::traffic_class));
    ip.flow_label = view.get(L::flow_label);
    ip.payload_length = static_cast<std::uint16_t>(view.get(L::payload_length));
    ip.next_header = IpProtocol(view.get(L::next_header));
    ip.hop_limit = static_cast<std::uint8_t>(view.get(L::hop_limit));
    ip.source = Gid::from(view.get(L::source));
    ip.destination = Gid::from(view.get(L::destination));
    return ip;
  }
  void emit(util::MutableView<Ipv6Layout> out) const {
    using L = Ipv6Layout;
    out.set(L::version, 6);
    out.set(L::traffic_class, traffic_class);
    out.set(L::flow_label, flow_label);
    out.set(L::payload_length, payload_length);
    out.set(L::next_header, static_cast<std::uint32_t>(next_header));
    out.set(L::hop_limit, hop_limit);
    std::memcpy(out.sub(L::source).data(), &source, Gid::kSize);
    std::memcpy(out.sub(L::destination).data(), &destination, Gid::kSize);
  }
  friend bool operator==(const Ipv6&, const Ipv6&) = default;
};

}  // namespace softhca::wire
