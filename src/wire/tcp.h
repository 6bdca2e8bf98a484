// The TCP header (RFC 9293 3.1), as a view with the fields that segmentation and classification
// use.
#pragma once

#include "util/field.h"

namespace softhca::wire {

struct TcpLayout {
  static constexpr std::size_t kSize = 20;
  template <std::size_t Offset, unsigned Hi, unsigned Lo = Hi>
  using Bits = util::Field<TcpLayout, util::ByteOrder::kBig, Offset, Hi, Lo>;
  static constexpr Bits<0, 31, 16> source_port{};
  static constexpr Bits<0, 15, 0> destination_port{};
  static constexpr Bits<4, 31, 0> sequence{};
  static constexpr Bits<8, 31, 0> acknowledgment{};
  /// Header size in units of 4 bytes, including options.
  static constexpr Bits<12, 31, 28> data_offset{};
  /// CWR ECE URG ACK PSH RST SYN FIN.
  static constexpr Bits<12, 23, 16> flags{};
  /// The same with NS (RFC 3540) in front.
  static constexpr Bits<12, 24, 16> all_flags{};
  static constexpr Bits<12, 23> cwr{};
  static constexpr Bits<12, 22> ece{};
  static constexpr Bits<12, 21> urg{};
  static constexpr Bits<12, 20> ack{};
  static constexpr Bits<12, 19> psh{};
  static constexpr Bits<12, 18> rst{};
  static constexpr Bits<12, 17> syn{};
  static constexpr Bits<12, 16> fin{};
  static constexpr Bits<12, 15, 0> window{};
  static constexpr Bits<16, 31, 16> checksum{};
  static constexpr Bits<16, 15, 0> urgent{};
  static constexpr std::size_t kChecksumOffset = 16;
};

using TcpView = util::View<TcpLayout>;

/// ACK as a bit of all_flags.
inline constexpr std::uint16_t kTcpAck = 1u << (TcpLayout::ack.kLo - TcpLayout::all_flags.kLo);

}  // namespace softhca::wire
