// Constants of the InfiniBand transport that are not part of a wire format.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace softhca::spec::infiniband {

inline constexpr std::uint32_t kPsnMask = 0xFF'FFFF;  ///< PSNs and MSNs are modulo 2^24
inline constexpr std::uint32_t kQpnMask = 0xFF'FFFF;
inline constexpr std::uint32_t kMulticastQpn = 0xFF'FFFF;
inline constexpr std::uint32_t kGsiQpn = 1;
inline constexpr std::uint32_t kGsiQkey = 0x8001'0000;
inline constexpr std::uint16_t kDefaultPkey = 0xFFFF;  ///< default partition, full member
inline constexpr std::uint8_t kRetryForever = 7;       ///< RNR retry count for unlimited retries
inline constexpr std::uint8_t kCreditCountInvalid =
    31;  ///< AETH value of a QP without flow control
inline constexpr std::uint64_t kMaxMessageBytes = std::uint64_t{1} << 31;
inline constexpr std::uint16_t kRoceV2UdpPort = 4791;
/// First of the source ports of flows, as in Linux.
inline constexpr std::uint16_t kUdpSourcePort = 0xC000;
inline constexpr std::uint16_t kRoceV1EtherType = 0x8915;
inline constexpr std::size_t kGrhBytes = 40;
inline constexpr std::size_t kIcrcBytes = 4;
inline constexpr std::size_t kVcrcBytes = 2;
inline constexpr std::size_t kLrhLengthUnit = 4;  ///< bytes of one unit of LRH packet_length
// LIDs (IBTA 4.1.3).
inline constexpr std::uint16_t kFirstMulticastLid = 0xC000;
inline constexpr std::uint16_t kPermissiveLid = 0xFFFF;  ///< addresses the port that receives the
                                                         ///< packet
inline constexpr std::uint8_t kLmcMax = 7;               ///< a port has up to 2^7 LIDs
inline constexpr std::size_t kServiceLevels = 16;
inline constexpr std::uint8_t kManagementLane = 15;  ///< the virtual lane that carries no data

inline constexpr std::uint16_t kFullMember = 0x8000;  ///< bit of a P_Key; 0: limited member
/// True if a QP with one P_Key takes packets with the other (IBTA 10.9.3): both name the same
/// partition, at least one is a full member, and neither is invalid (0 without the bit).
constexpr bool may_talk(std::uint16_t a, std::uint16_t b) {
  return ((a ^ b) & ~kFullMember & 0xFFFF) == 0 && (a | b) > kFullMember;
}
/// True if a Q_Key in a work request stands for the QP's own (IBTA 10.2.5).
constexpr bool means_own_qkey(std::uint32_t qkey) { return (qkey & 0x8000'0000) != 0; }

/// Delay requested by the 5-bit timer code of an RNR NAK (IBTA 9.7.5.2.8).
constexpr std::chrono::microseconds rnr_timer(std::uint8_t code) {
  constexpr std::array<std::uint32_t, 32> kMicroseconds = {
      655'360, 10,     20,     30,     40,     60,      80,      120,     160,     240,    320,
      480,     640,    960,    1'280,  1'920,  2'560,   3'840,   5'120,   7'680,   10'240, 15'360,
      20'480,  30'720, 40'960, 61'440, 81'920, 122'880, 163'840, 245'760, 327'680, 491'520};
  return std::chrono::microseconds(kMicroseconds[code & 31]);
}

/// Local ACK timeout of the 5-bit code: 4.096 us * 2^code. Nothing: never (code 0).
constexpr std::optional<std::chrono::nanoseconds> ack_timeout(std::uint8_t code) {
  if (code == 0) return std::nullopt;
  return std::chrono::nanoseconds(std::int64_t{4096} << (code & 31));
}

/// End-to-end credits of the 5-bit code in an ACK (IBTA 9.7.7.2.1). Nothing: no limit.
constexpr std::optional<std::uint32_t> credit_count(std::uint8_t code) {
  constexpr std::array<std::uint16_t, 31> kCredits = {
      0,   1,   2,   3,   4,    6,    8,    12,   16,   24,   32,   48,    64,    96,    128,  192,
      256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768};
  if ((code & 31) == kCreditCountInvalid) return std::nullopt;
  return kCredits[code & 31];
}

/// Differentiated services code point of a traffic class (RFC 2474 3).
constexpr std::uint8_t dscp_of(std::uint8_t traffic_class) {
  return static_cast<std::uint8_t>(traffic_class >> 2);
}

/// Bytes of MTU codes 1 to 5; 0 for all others.
constexpr std::uint32_t mtu_bytes(std::uint8_t code) {
  return code >= 1 && code <= 5 ? 128U << code : 0;
}

}  // namespace softhca::spec::infiniband
