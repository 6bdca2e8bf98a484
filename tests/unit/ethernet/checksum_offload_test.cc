#include "ethernet/checksum_offload.h"

#include <gtest/gtest.h>

#include "ethernet/vectors.h"
#include "wire/checksum.h"
#include "wire/hex.h"
#include "wire/ib_header.h"

namespace softhca::ethernet {
namespace {

using wire::Frame;
using wire::from_hex;

ReceivedChecksum check_bytes(std::span<const std::byte> bytes) {
  const auto frame = Frame::from_bytes(bytes);
  return check(frame, classify(frame));
}

constexpr std::string_view kWithL4[] = {vectors::kTcpIpv4,      vectors::kUdpIpv4,
                                        vectors::kUdpIpv6,      vectors::kTcpIpv6HopByHop,
                                        vectors::kTcpInTwoTags, vectors::kUdpIpv4Options};

TEST(ChecksumOffload, AcceptsWhatScapyComputed) {
  for (const auto hex : kWithL4) {
    const auto result = check_bytes(from_hex(hex));
    EXPECT_TRUE(result.l3_ok) << hex;
    EXPECT_TRUE(result.l4_ok) << hex;
  }
}

TEST(ChecksumOffload, FindsEveryFlippedBitOfTheL4Packet) {
  for (const auto hex : kWithL4) {
    const auto good = from_hex(hex);
    const auto offset = classify(Frame::from_bytes(good)).l4_offset;
    for (std::size_t at = offset; at != good.size(); ++at) {
      for (unsigned bit = 0; bit != 8; ++bit) {
        auto bad = good;
        bad[at] ^= std::byte(1u << bit);
        EXPECT_FALSE(check_bytes(bad).l4_ok) << hex << " " << at;
        EXPECT_TRUE(check_bytes(bad).l3_ok);
      }
    }
  }
}

TEST(ChecksumOffload, FindsAWrongIpv4HeaderChecksum) {
  auto bytes = from_hex(vectors::kTcpIpv4);
  bytes[22] ^= std::byte{1};  // TTL
  EXPECT_FALSE(check_bytes(bytes).l3_ok);
  EXPECT_TRUE(check_bytes(bytes).l4_ok) << "TTL is no part of the pseudo header";
}

// mlx5 driver interface 8.11: from the network header to the end, without Ethernet padding.
TEST(ChecksumOffload, TheSumIsOfTheWholeIpPacketWithoutPadding) {
  for (const auto hex :
       {vectors::kTcpIpv4, vectors::kUdpIpv6, vectors::kTcpIpv6HopByHop, vectors::kTcpInTwoTags,
        vectors::kIpv6Fragment, vectors::kIcmpPaddedTo60}) {
    const auto bytes = from_hex(hex);
    const auto info = classify(Frame::from_bytes(bytes));
    wire::ChecksumSum sum;
    sum.add(std::span(bytes).subspan(info.l3_offset, info.l3_size));
    EXPECT_EQ(check_bytes(bytes).sum, sum.value()) << hex;
  }
  EXPECT_EQ(check_bytes(from_hex(vectors::kArp)).sum, 0);
  auto padded = from_hex(vectors::kUdpIpv4);
  const auto sum = check_bytes(padded).sum;
  padded.resize(60, std::byte{0xEE});
  EXPECT_EQ(check_bytes(padded).sum, sum);
}

TEST(ChecksumOffload, TheSumDoesNotDependOnHowTheFrameIsCut) {
  const auto bytes = from_hex(vectors::kTcpIpv4);
  const auto expected = check_bytes(bytes);
  for (std::size_t cut = 66; cut <= bytes.size(); ++cut) {
    Frame frame;
    std::memcpy(frame.resize_head(cut).data(), bytes.data(), cut);
    ASSERT_TRUE(frame.add_segment(std::span(bytes).subspan(cut)));
    const auto result = check(frame, classify(frame));
    EXPECT_EQ(result.sum, expected.sum);
    EXPECT_TRUE(result.l4_ok);
  }
}

TEST(ChecksumOffload, AbsentUdpChecksumIsRightInIpv4Only) {
  auto ipv4 = from_hex(vectors::kUdpIpv4);
  ipv4[40] = ipv4[41] = std::byte{0};
  EXPECT_TRUE(check_bytes(ipv4).l4_ok);
  auto ipv6 = from_hex(vectors::kUdpIpv6);
  ipv6[60] = ipv6[61] = std::byte{0};
  EXPECT_FALSE(check_bytes(ipv6).l4_ok);
}

TEST(ChecksumOffload, LeavesFragmentsAndOthersToSoftware) {
  const auto fragment = check_bytes(from_hex(vectors::kIpv6Fragment));
  EXPECT_TRUE(fragment.l3_ok);
  EXPECT_FALSE(fragment.l4_ok);
  EXPECT_FALSE(check_bytes(from_hex(vectors::kIcmpPaddedTo60)).l4_ok);
  EXPECT_FALSE(check_bytes(from_hex(vectors::kArp)).l3_ok);
}

// PRM 3.3.1: "the value placed in TCP/UDP checksum is ignored by the device".
TEST(ChecksumOffload, InsertsWhatScapyComputedWhateverStoodThere) {
  for (const auto hex : kWithL4) {
    const auto expected = from_hex(hex);
    for (const auto garbage : {0x00, 0xff, 0x5a}) {
      auto bytes = expected;
      const auto info = classify(Frame::from_bytes(bytes));
      const auto field = info.l4_offset + (info.l4 == L4Type::kTcp ? 16u : 6u);
      bytes[field] = bytes[field + 1] = std::byte(garbage);
      if (info.l3 == L3Type::kIpv4) bytes[info.l3_offset + 10u] = std::byte(garbage);
      auto frame = Frame::from_bytes(bytes);
      insert_l3_checksum(frame, info);
      insert_l4_checksum(frame, info);
      std::vector<std::byte> result(frame.size());
      frame.copy_to(result);
      EXPECT_EQ(result, expected);
    }
  }
}

// RFC 768: "If the computed checksum is zero, it is transmitted as all ones".
TEST(ChecksumOffload, AUdpChecksumOfZeroIsSentAsAllOnes) {
  auto bytes = from_hex(vectors::kUdpIpv4);
  const auto checksum = util::load_be16(&bytes[40]);
  // Makes the checksum zero by adding its value to the payload.
  const auto word = util::load_be16(&bytes[42]);
  const auto sum = std::uint32_t{word} + checksum;
  util::store_be16(&bytes[42], static_cast<std::uint16_t>((sum & 0xffff) + (sum >> 16)));
  auto frame = Frame::from_bytes(bytes);
  insert_l4_checksum(frame, classify(frame));
  EXPECT_EQ(util::load_be16(std::as_const(frame).head().data() + 40), 0xffff);
  EXPECT_TRUE(check(frame, classify(frame)).l4_ok);
}

TEST(ChecksumOffload, DoesNotTouchWhatItDoesNotSupport) {
  for (const auto hex : {vectors::kArp, vectors::kIpv6Fragment}) {
    const auto bytes = from_hex(hex);
    auto frame = Frame::from_bytes(bytes);
    insert_l3_checksum(frame, classify(frame));
    insert_l4_checksum(frame, classify(frame));
    std::vector<std::byte> result(frame.size());
    frame.copy_to(result);
    EXPECT_EQ(result, bytes);
  }
}

TEST(ChecksumOffload, ARocePacketCountsWithItsIcrcOnceItIsComputed) {
  wire::IbAddress address;
  address.source_gid = wire::Gid::from_ipv4(1);
  address.destination_gid = wire::Gid::from_ipv4(2);
  Frame frame;
  wire::IbHeader(address).emit(wire::Bth{}, {}, 0, frame);
  frame.compute_icrc();
  std::vector<std::byte> bytes(frame.size());
  frame.copy_to(bytes);
  EXPECT_EQ(check(frame, classify(frame)).sum, check_bytes(bytes).sum);
  EXPECT_TRUE(wire::IbPacket::parse(frame));
}

}  // namespace
}  // namespace softhca::ethernet
