// The UDP header (RFC 768).
#pragma once

#include "util/field.h"

namespace softhca::wire {

struct UdpLayout {
  static constexpr std::size_t kSize = 8;
  template <std::size_t Offset, unsigned Hi, unsigned Lo>
  using Bits = util::Field<UdpLayout, util::ByteOrder::kBig, Offset, Hi, Lo>;
  static constexpr Bits<0, 31, 16> source_port{};
  static constexpr Bits<0, 15, 0> destination_port{};
  static constexpr Bits<4, 31, 16> length{};
  static constexpr Bits<4, 15, 0> checksum{};
  static constexpr std::size_t kChecksumOffset = 6;
};

using UdpView = util::View<UdpLayout>;

struct Udp {
  std::uint16_t source_port = 0;
  std::uint16_t destination_port = 0;
  std::uint16_t length = 0;  ///< bytes of header and payload
  std::uint16_t checksum = 0;

  static Udp parse(UdpView view) {
    return {static_cast<std::uint16_t>(view.get(UdpLayout::source_port)),
            static_cast<std::uint16_t>(view.get(UdpLayout::destination_port)),
            static_cast<std::uint16_t>(view.get(UdpLayout::length)),
            static_cast<std::uint16_t>(view.get(UdpLayout::checksum))};
  }
  void emit(util::MutableView<UdpLayout> out) const {
    out.set(UdpLayout::source_port, source_port);
    out.set(UdpLayout::destination_port, destination_port);
    out.set(UdpLayout::length, length);
    out.set(UdpLayout::checksum, checksum);
  }
  friend bool operator==(const Udp&, const Udp&) = default;
};

}  // namespace softhca::wire
