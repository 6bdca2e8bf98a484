#include "ethernet/packet_info.h"

#include <gtest/gtest.h>

#include <utility>

#include "ethernet/checksum_offload.h"
#include "ethernet/flow_headers.h"
#include "ethernet/vectors.h"
#include "util/endian.h"
#include "wire/hex.h"

namespace softhca::ethernet {
namespace {

using wire::EtherType;
using wire::Frame;
using wire::from_hex;
using wire::Gid;
using wire::IpProtocol;

PacketInfo info_of(std::string_view hex) {
  const auto bytes = from_hex(hex);
  return classify(Frame::from_bytes(bytes));
}

TEST(PacketInfo, OfTcpInIpv4) {
  const auto info = info_of(vectors::kTcpIpv4);
  EXPECT_EQ(info.destination_mac, wire::MacAddress::from_u64(0x020000000002));
  EXPECT_EQ(info.source_mac, wire::MacAddress::from_u64(0x020000000001));
  EXPECT_FALSE(info.tag);
  EXPECT_EQ(info.ether_type, EtherType::kIpv4);
  EXPECT_EQ(info.l3, L3Type::kIpv4);
  EXPECT_EQ(info.l3_offset, 14);
  EXPECT_EQ(info.l3_size, 20u + 32 + 3);
  EXPECT_TRUE(info.l3_length_ok);
  EXPECT_EQ(info.ip.source, Gid::from_ipv4(0x0a000001));
  EXPECT_EQ(info.ip.destination, Gid::from_ipv4(0x0a000002));
  EXPECT_EQ(info.ip.traffic_class.dscp(), 0x2e);
  EXPECT_EQ(info.ip.hop_limit, 64);
  EXPECT_EQ(info.l4, L4Type::kTcp);
  EXPECT_EQ(info.l4_offset, 34);
  EXPECT_EQ(info.l4_header_size, 32);
  EXPECT_EQ(info.l4_size(), 35u);
  EXPECT_EQ(info.source_port, 1024);
  EXPECT_EQ(info.destination_port, 80);
  EXPECT_EQ(info.tcp_flags, 0x018);
}

TEST(PacketInfo, OfUdpInIpv6) {
  const auto info = info_of(vectors::kUdpIpv6);
  EXPECT_EQ(info.l3, L3Type::kIpv6);
  EXPECT_EQ(info.l3_size, 40u + 8 + 5);
  EXPECT_EQ(info.ip.traffic_class.value, 0x29);
  EXPECT_EQ(info.ip.traffic_class.ecn(), 1);
  EXPECT_EQ(info.ip.hop_limit, 9);
  EXPECT_EQ(info.l4, L4Type::kUdp);
  EXPECT_EQ(info.l4_offset, 54);
  EXPECT_EQ(info.destination_port, 2);
  EXPECT_FALSE(info.ip.options);
}

TEST(PacketInfo, WalksIpv6ExtensionHeaders) {
  const auto info = info_of(vectors::kTcpIpv6HopByHop);
  EXPECT_EQ(info.ip.protocol, IpProtocol::kTcp);
  EXPECT_TRUE(info.ip.options);
  EXPECT_EQ(info.l4, L4Type::kTcp);
  EXPECT_EQ(info.l4_offset, 14 + 40 + 8);
  EXPECT_EQ(info.tcp_flags, 0x0c2);

  // RFC 8200 4.3: the length counts units of 8 bytes, without the first.
  auto longer = from_hex(vectors::kTcpIpv6HopByHop);
  longer[14 + 5] = std::byte{0x1d + 16};
  longer[14 + 40 + 1] = std::byte{2};
  longer.insert(longer.begin() + 14 + 40 + 8, 16, std::byte{0});
  const auto behind = classify(Frame::from_bytes(longer));
  EXPECT_EQ(behind.l4_offset, 14 + 40 + 24);
  EXPECT_EQ(behind.tcp_flags, 0x0c2);
}

TEST(PacketInfo, SeesTwoTags) {
  const auto info = info_of(vectors::kTcpInTwoTags);
  EXPECT_EQ(info.tag, (PacketInfo::Tag{EtherType::kServiceVlan, 5}));
  EXPECT_EQ(info.inner_tag, (PacketInfo::Tag{EtherType::kVlan, 0x4007}));
  EXPECT_EQ(info.ether_type, EtherType::kIpv4);
  EXPECT_EQ(info.l3_offset, 22);
  EXPECT_EQ(info.l4, L4Type::kTcp);
}

TEST(PacketInfo, SeesIpv4Options) {
  const auto info = info_of(vectors::kUdpIpv4Options);
  EXPECT_TRUE(info.ip.options);
  EXPECT_FALSE(info.ip.source_routed);
  EXPECT_EQ(info.l4, L4Type::kUdp);
  EXPECT_EQ(info.source_port, 7);
  auto bytes = from_hex(vectors::kUdpIpv4Options);
  bytes[34] = std::byte{131};  // LSRR in place of record route
  EXPECT_TRUE(classify(Frame::from_bytes(bytes)).ip.source_routed);
  bytes[34] = std::byte{1};  // one more NOP, then an option of length 7 that does not fit
  EXPECT_FALSE(classify(Frame::from_bytes(bytes)).ip.source_routed);
}

TEST(PacketInfo, FragmentsHaveNoPorts) {
  const auto ipv6 = info_of(vectors::kIpv6Fragment);
  EXPECT_TRUE(ipv6.ip.fragment);
  EXPECT_EQ(ipv6.ip.protocol, IpProtocol::kUdp);
  EXPECT_EQ(ipv6.l4, L4Type::kNone);
  EXPECT_EQ(ipv6.source_port, 0);
  auto bytes = from_hex(vectors::kUdpIpv4);
  bytes[20] = std::byte{0x20};  // more fragments
  EXPECT_TRUE(classify(Frame::from_bytes(bytes)).ip.fragment);
  bytes[20] = std::byte{0x00};
  bytes[21] = std::byte{0x01};  // offset 8
  EXPECT_EQ(classify(Frame::from_bytes(bytes)).l4, L4Type::kNone);
}

TEST(PacketInfo, EthernetPaddingIsNotPartOfIp) {
  const auto info = info_of(vectors::kIcmpPaddedTo60);
  EXPECT_EQ(info.l3_size, 32u);
  EXPECT_EQ(info.ip.protocol, IpProtocol::kIcmp);
  EXPECT_EQ(info.l4, L4Type::kNone);
  EXPECT_EQ(info.l4_offset, 34);
}

TEST(PacketInfo, OfWhatIsNotIp) {
  const auto info = info_of(vectors::kArp);
  EXPECT_EQ(info.ether_type, EtherType::kArp);
  EXPECT_EQ(info.l3, L3Type::kNone);
  EXPECT_EQ(info.l4, L4Type::kNone);
}

TEST(PacketInfo, HeadersAreFoundWhateverLengthIpGives) {
  auto bytes = from_hex(vectors::kTcpIpv4);
  const auto whole = classify(Frame::from_bytes(bytes));
  util::store_be16(bytes.data() + 16, static_cast<std::uint16_t>(bytes.size() + 100));
  const auto info = classify(Frame::from_bytes(bytes));
  EXPECT_FALSE(info.l3_length_ok);
  EXPECT_EQ(info.l4, L4Type::kTcp);
  EXPECT_EQ(info.source_port, whole.source_port);
  EXPECT_EQ(info.destination_port, whole.destination_port);
  EXPECT_FALSE(FlowHeaders::can_be_cached(info));
}

TEST(PacketInfo, LengthsBeyondTheFrameAreNotBelieved) {
  auto bytes = from_hex(vectors::kUdpIpv4);
  bytes[17] = std::byte(bytes.size() - 14 + 1);
  auto info = classify(Frame::from_bytes(bytes));
  EXPECT_FALSE(info.l3_length_ok);
  EXPECT_EQ(info.l3, L3Type::kIpv4);
  EXPECT_EQ(info.l3_size, bytes.size() - 14);
  EXPECT_EQ(info.l4, L4Type::kUdp);
  EXPECT_FALSE(check(Frame::from_bytes(bytes), info).l4_ok);
  bytes[17] = std::byte{19};  // ends within its own header
  EXPECT_EQ(classify(Frame::from_bytes(bytes)).l4, L4Type::kNone);
  bytes[17] = std::byte{27};  // ends within the UDP header
  info = classify(Frame::from_bytes(bytes));
  EXPECT_TRUE(info.l3_length_ok);
  EXPECT_EQ(info.l4, L4Type::kNone);
}

TEST(PacketInfo, NoPrefixReadsBeyondItsEnd) {
  for (const auto hex : {vectors::kTcpIpv4, vectors::kTcpIpv6HopByHop, vectors::kTcpInTwoTags,
                         vectors::kUdpIpv4Options, vectors::kIpv6Fragment}) {
    const auto whole = from_hex(hex);
    for (std::size_t size = 0; size <= whole.size(); ++size) {
      // A copy of exactly this size, so that a sanitizer reports reads beyond it.
      const std::vector<std::byte> bytes(whole.begin(), whole.begin() + long(size));
      const auto info = classify(Frame::from_bytes(bytes));
      EXPECT_TRUE(size == whole.size() || !info.l3_length_ok);
      EXPECT_EQ(classify_template(bytes).l3_offset, info.l3_offset);
    }
  }
}

TEST(PacketInfo, TheSpiOfEspBeginsItsHeaderAndThatOfAhIsItsSecondWord) {
  for (const auto& [protocol, spi] : {std::pair{50, 0x12345678u}, std::pair{51, 0x9abcdef0u}}) {
    auto bytes = from_hex(vectors::kTcpIpv4);
    bytes[14 + 9] = static_cast<std::byte>(protocol);
    util::store_be32(bytes.data() + 34, 0x12345678);
    util::store_be32(bytes.data() + 38, 0x9abcdef0);
    EXPECT_EQ(classify(Frame::from_bytes(bytes)).ipsec_spi, spi) << protocol;
  }
  EXPECT_EQ(info_of(vectors::kTcpIpv4).ipsec_spi, std::nullopt);
}

}  // namespace
}  // namespace softhca::ethernet
