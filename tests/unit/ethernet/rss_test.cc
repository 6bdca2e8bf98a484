#include "ethernet/rss.h"

#include <gtest/gtest.h>

#include <set>

#include "ethernet/vectors.h"
#include "wire/hex.h"

namespace softhca::ethernet {
namespace {

using wire::from_hex;
using wire::Gid;

constexpr std::uint32_t kIps = kHashSourceIp | kHashDestinationIp;
constexpr std::uint32_t kAll = kIps | kHashSourcePort | kHashDestinationPort;

/// The key of Microsoft's "Verifying the RSS Hash Calculation".
Toeplitz toeplitz() {
  const auto key =
      from_hex("6d5a56da255b0ec24167253d43a38fb0d0ca2bcbae7b30b477cb2da38030f20c6a42b73bbeac01fa");
  return Toeplitz(std::span<const std::byte, Toeplitz::kKeySize>(key));
}

PacketInfo packet(L3Type l3, Gid destination, std::uint16_t destination_port, Gid source,
                  std::uint16_t source_port) {
  PacketInfo info;
  info.l3 = l3;
  info.l4 = L4Type::kTcp;
  info.ip.source = source;
  info.ip.destination = destination;
  info.source_port = source_port;
  info.destination_port = destination_port;
  return info;
}

std::uint32_t hash(const PacketInfo& info, std::uint32_t fields) {
  return toeplitz().hash(HashInput(info, fields, false).bytes());
}

Gid ipv4(unsigned a, unsigned b, unsigned c, unsigned d) {
  return Gid::from_ipv4(a << 24 | b << 16 | c << 8 | d);
}
Gid ipv6(std::string_view hex) {
  return Gid::from(std::span<const std::byte, Gid::kSize>(from_hex(hex)));
}

TEST(Toeplitz, GivesMicrosoftsPublishedHashesForIpv4) {
  struct Row {
    Gid destination;
    std::uint16_t destination_port;
    Gid source;
    std::uint16_t source_port;
    std::uint32_t ip_only, with_tcp;
  };
  const Row rows[] = {
      {ipv4(161, 142, 100, 80), 1766, ipv4(66, 9, 149, 187), 2794, 0x323e8fc2, 0x51ccc178},
      {ipv4(65, 69, 140, 83), 4739, ipv4(199, 92, 111, 2), 14230, 0xd718262a, 0xc626b0ea},
      {ipv4(12, 22, 207, 184), 38024, ipv4(24, 19, 198, 95), 12898, 0xd2d0a5de, 0x5c2b394a},
      {ipv4(209, 142, 163, 6), 2217, ipv4(38, 27, 205, 30), 48228, 0x82989176, 0xafc7327f},
      {ipv4(202, 188, 127, 2), 1303, ipv4(153, 39, 163, 191), 44251, 0x5d1809c5, 0x10e828a2},
  };
  for (const auto& row : rows) {
    const auto info =
        packet(L3Type::kIpv4, row.destination, row.destination_port, row.source, row.source_port);
    EXPECT_EQ(hash(info, kIps), row.ip_only);
    EXPECT_EQ(hash(info, kAll), row.with_tcp);
  }
}

TEST(Toeplitz, GivesMicrosoftsPublishedHashesForIpv6) {
  const auto first = packet(L3Type::kIpv6, ipv6("3ffe2501020000030000000000000001"), 1766,
                            ipv6("3ffe2501020 01fff0000000000000007"), 2794);
  EXPECT_EQ(hash(first, kIps), 0x2cc18cd5u);
  EXPECT_EQ(hash(first, kAll), 0x40207d3du);
  const auto second = packet(L3Type::kIpv6, ipv6("ff020000000000000000000000000001"), 4739,
                             ipv6("3ffe05010008000002 6097fffe40efab"), 14230);
  EXPECT_EQ(hash(second, kIps), 0x0f0c461cu);
  EXPECT_EQ(hash(second, kAll), 0xdde51bbfu);
  const auto third = packet(L3Type::kIpv6, ipv6("fe800000000000000200f8fffe2167cf"), 38024,
                            ipv6("3ffe1900454500030200f8fffe2167cf"), 44251);
  EXPECT_EQ(hash(third, kIps), 0x4b61e985u);
  EXPECT_EQ(hash(third, kAll), 0x02d1feefu);
}

TEST(HashInput, HasTheSelectedFieldsOnlyInOrder) {
  const auto info = packet(L3Type::kIpv4, ipv4(5, 6, 7, 8), 0x1112, ipv4(1, 2, 3, 4), 0x2122);
  const auto input = [&](std::uint32_t fields) {
    const HashInput hash_input(info, fields, false);
    return std::vector(hash_input.bytes().begin(), hash_input.bytes().end());
  };
  EXPECT_EQ(input(kAll), from_hex("01020304 05060708 2122 1112"));
  EXPECT_EQ(input(kHashSourceIp | kHashDestinationPort), from_hex("01020304 1112"));
  EXPECT_EQ(input(0), from_hex(""));
}

// PRM TIR context: "the L3 and the L4 fields are sorted prior to insertion".
TEST(HashInput, SymmetricHashesBothDirectionsAlike) {
  const auto there = packet(L3Type::kIpv4, ipv4(5, 6, 7, 8), 80, ipv4(1, 2, 3, 4), 1024);
  const auto back = packet(L3Type::kIpv4, ipv4(1, 2, 3, 4), 1024, ipv4(5, 6, 7, 8), 80);
  const auto symmetric = [](const PacketInfo& info) {
    return toeplitz().hash(HashInput(info, kAll, true).bytes());
  };
  EXPECT_EQ(symmetric(there), symmetric(back));
  EXPECT_NE(hash(there, kAll), hash(back, kAll));
}

// PRM TIR context, selected_fields: IPsec has no ports, so the SPI tells flows apart.
TEST(HashInput, HasTheSpiOfIpsecTraffic) {
  auto info = packet(L3Type::kIpv4, ipv4(5, 6, 7, 8), 0, ipv4(1, 2, 3, 4), 0);
  info.l4 = L4Type::kNone;
  info.ipsec_spi = 0xA1B2C3D4;
  const HashInput input(info, kHashSourceIp | kHashSourcePort | kHashIpsecSpi, false);
  EXPECT_EQ(std::vector(input.bytes().begin(), input.bytes().end()), from_hex("01020304 a1b2c3d4"));
}

TEST(HashInput, OfAPacketWithoutTheFieldsIsEmpty) {
  EXPECT_TRUE(HashInput(PacketInfo{}, kAll, true).bytes().empty());
}

TEST(InvertedXor8, InvertsAsManyBitsAsTheTableHas) {
  const auto input = from_hex("0102040880");
  EXPECT_EQ(inverted_xor8(input, 0), 0x8fu);
  EXPECT_EQ(inverted_xor8(input, 4), 0x80u);
  EXPECT_EQ(inverted_xor8(input, 8), 0x70u);
  EXPECT_EQ(inverted_xor8({}, 3), 0x07u);
}

}  // namespace
}  // namespace softhca::ethernet
