// RoCEv2 packets as a UDP socket sends and receives them (IBTA Annex A17): the datagram is the BTH
// to the ICRC. The kernel writes and reads the headers before it. The ICRC covers most of them, so
// it is computed over the headers that the kernel writes:
//
// - IPv4: 20 bytes, DF set, identification 0. Linux sends this from a socket that is not connected
//   and has IP_PMTUDISC_DO. It numbers the parts of a message that it cuts (UDP_SEGMENT): 0, 1, ...
// - IPv6: the fields that the kernel chooses are not covered.
// - UDP: the source port is the socket's.
//
// A receiver does not see the identification of an IPv4 header (identification.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <tl/expected.hpp>

#include "wire/frame.h"
#include "wire/gid.h"
#include "wire/icrc.h"
#include "wire/identification.h"
#include "wire/mac_address.h"

namespace softhca::wire {

/// The fields of the headers before the BTH that a socket gives as addresses and control messages.
struct DatagramPath {
  Gid source;  ///< IPv4-mapped if `destination` is
  Gid destination;
  std::uint16_t source_port = 0;
  std::uint8_t traffic_class = 0;  ///< DSCP (7:2) and ECN (1:0)
  std::uint8_t hop_limit = 0;
  /// Identification of the IPv4 header: the position of the packet in its message (UDP_SEGMENT,
  /// UDP_GRO). Not on the wire over IPv6.
  std::uint16_t identification = 0;

  friend bool operator==(const DatagramPath&, const DatagramPath&) = default;
};

enum class DatagramError : std::uint8_t {
  kOther,    ///< no valid RoCEv2 packet
  kLength,   ///< of a datagram: too short for BTH and ICRC, or longer than any packet
  kAddress,  ///< of a datagram: IPv4 and IPv6 mixed
  kIcrc,     ///< does not match
};
std::string_view to_string(DatagramError error);

/// A packet to be sent.
struct RoceDatagram {
  /// Head, segments, tail and ICRC.
  static constexpr std::size_t kPiecesMax = Frame::kSegmentsMax + 3;

  DatagramPath path;
  std::array<std::span<const std::byte>, kPiecesMax> parts;
  std::size_t part_count = 0;
  std::size_t size = 0;  ///< of all parts

  std::span<const std::span<const std::byte>> pieces() const { return {parts.data(), part_count}; }

  /// Makes this the datagram of `frame`, sent from UDP port `source_port`. The pieces refer to the
  /// frame, its memory and this object. The frame's own ICRC is checked, unless it is deferred, and
  /// replaced.
  /// @pre frame.packets() == 1
  tl::expected<void, DatagramError> make(const Frame& frame, std::uint16_t source_port,
                                         std::uint16_t identification = 0);
  /// The last piece, if the datagram is sent as a message of its own. @pre make()
  std::array<std::byte, kIcrcSize> icrc_alone() const;

 private:
  std::array<std::byte, kIcrcSize> icrc_;
};

/// Makes frames from received datagrams.
class DatagramReader {
 public:
  /// The addresses of the Ethernet header, which the frames need.
  DatagramReader(const MacAddress& source, const MacAddress& destination)
      : source_(source), destination_(destination) {}

  /// Longest datagram: a packet of the largest path MTU (IBTA 9.4.3) with all of its headers.
  static constexpr std::size_t kDatagramMax = 4096 + 128;

  /// Fills `frame` with made-up headers and `datagram`, to whose payload it refers. Checks the ICRC
  /// of the packet that was on the wire: the frame's is right, and deferred, so it need not be
  /// checked again. Everything else is to be parsed as from a wire. The path's identification is
  /// tried first.
  tl::expected<void, DatagramError> read(std::span<const std::byte> datagram,
                                         const DatagramPath& path, Frame& frame);

 private:
  const MacAddress source_;
  const MacAddress destination_;
  HiddenIdentification identification_;
};

}  // namespace softhca::wire
