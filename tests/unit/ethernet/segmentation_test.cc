#include "ethernet/segmentation.h"

#include <gtest/gtest.h>

#include "ethernet/checksum_offload.h"
#include "ethernet/vectors.h"
#include "wire/hex.h"
#include "wire/ipv6.h"
#include "wire/tcp.h"

namespace softhca::ethernet {
namespace {

using wire::Frame;
using wire::from_hex;
using L = wire::TcpLayout;

std::vector<std::byte> headers_of(std::string_view hex) {
  auto bytes = from_hex(hex);
  const auto info = classify(Frame::from_bytes(bytes));
  bytes.resize(info.l4_offset + info.l4_header_size);
  return bytes;
}

std::vector<std::byte> payload_of(std::size_t size) {
  std::vector<std::byte> payload(size);
  for (std::size_t i = 0; i != size; ++i) payload[i] = std::byte(i * 31 + i / 256);
  return payload;
}

/// All packets as bytes with checksums. Checks what must hold for each.
std::vector<std::vector<std::byte>> segment(std::span<const std::byte> headers,
                                            std::span<const std::byte> payload, std::size_t mss) {
  auto segmenter = Segmenter::create(headers, payload.size(), mss);
  EXPECT_TRUE(segmenter);
  std::vector<std::vector<std::byte>> packets;
  std::vector<std::byte> together;
  while (!segmenter->done()) {
    Frame frame;
    const auto part = segmenter->next(frame);
    EXPECT_EQ(part.offset, together.size());
    const auto bytes = payload.subspan(part.offset, part.size);
    EXPECT_TRUE(frame.add_segment(bytes));
    together.insert(together.end(), bytes.begin(), bytes.end());
    const auto info = classify(frame);
    insert_l3_checksum(frame, info);
    insert_l4_checksum(frame, info);
    frame.copy_to(packets.emplace_back(frame.size()));
    const auto arrived = Frame::from_bytes(packets.back());
    const auto result = check(arrived, classify(arrived));
    EXPECT_TRUE(result.l3_ok);
    EXPECT_TRUE(result.l4_ok);
    EXPECT_EQ(info.l3_offset + info.l3_size, frame.size());
  }
  EXPECT_EQ(packets.size(), segmenter->count());
  EXPECT_TRUE(std::equal(together.begin(), together.end(), payload.begin(), payload.end()));
  return packets;
}

TEST(Segmenter, CutsTheMessageIntoPacketsOfTheMss) {
  for (const auto hex : {vectors::kTcpIpv4, vectors::kTcpIpv6HopByHop, vectors::kTcpInTwoTags,
                         vectors::kUdpIpv4, vectors::kUdpIpv6, vectors::kUdpIpv4Options}) {
    const auto headers = headers_of(hex);
    for (const std::size_t size : {0u, 1u, 999u, 1000u, 1001u, 64000u}) {
      const auto packets = segment(headers, payload_of(size), 1000);
      for (std::size_t i = 0; i + 1 < packets.size(); ++i) {
        EXPECT_EQ(packets[i].size(), headers.size() + 1000);
      }
    }
  }
}

TEST(Segmenter, CountsTcpSequenceAndIpv4IdentificationUp) {
  const auto packets = segment(headers_of(vectors::kTcpIpv4), payload_of(2500), 1000);
  ASSERT_EQ(packets.size(), 3u);
  for (std::uint32_t i = 0; i != 3; ++i) {
    const wire::TcpView tcp(std::span(packets[i]).subspan(34));
    EXPECT_EQ(tcp.get(L::sequence), 0x01020304u + 1000 * i);
    EXPECT_EQ(tcp.get(L::acknowledgment), 0x0a0b0c0du);
    const wire::Ipv4View ip(std::span(packets[i]).subspan(14));
    EXPECT_EQ(ip.get(wire::Ipv4Layout::identification), 0x1234u + i);
  }
}

TEST(Segmenter, SequenceAndIdentificationWrap) {
  auto headers = headers_of(vectors::kTcpIpv4);
  util::store_be32(&headers[38], 0xffffff00);
  util::store_be16(&headers[18], 0xffff);
  const auto packets = segment(headers, payload_of(2000), 1000);
  EXPECT_EQ(util::load_be32(&packets[1][38]), 0xffffff00u + 1000);
  EXPECT_EQ(util::load_be16(&packets[1][18]), 0);
}

TEST(Segmenter, PshAndFinAreOfTheLastPacketAndCwrOfTheFirst) {
  auto headers = headers_of(vectors::kTcpIpv4);
  headers[47] = std::byte{0xff};
  const auto packets = segment(headers, payload_of(3000), 1000);
  const auto flags = [&](std::size_t i) { return std::to_integer<unsigned>(packets[i][47]); };
  EXPECT_EQ(flags(0), 0xf6u) << "all but PSH and FIN";
  EXPECT_EQ(flags(1), 0x76u) << "nor CWR";
  EXPECT_EQ(flags(2), 0x7fu) << "all but CWR";
  EXPECT_EQ(segment(headers, payload_of(10), 1000)[0][47], std::byte{0xff}) << "first and last";
}

TEST(Segmenter, UdpPacketsHaveTheirOwnLength) {
  const auto packets = segment(headers_of(vectors::kUdpIpv6), payload_of(1500), 1000);
  ASSERT_EQ(packets.size(), 2u);
  EXPECT_EQ(util::load_be16(&packets[0][58]), 1008);
  EXPECT_EQ(util::load_be16(&packets[1][58]), 508);
  EXPECT_EQ(util::load_be16(&packets[1][18]), 508) << "IPv6 payload length";
}

TEST(Segmenter, TheTemplatesLengthsCountForNothing) {
  auto headers = headers_of(vectors::kTcpIpv4);
  util::store_be16(&headers[16], 0xffff);
  EXPECT_EQ(segment(headers, payload_of(1500), 1000).size(), 2u);
  util::store_be16(&headers[16], 0);
  EXPECT_EQ(segment(headers, payload_of(1500), 1000).size(), 2u);
}

TEST(Segmenter, GivesTheReasonOfARefusal) {
  const auto error = [](std::span<const std::byte> headers, std::size_t payload, std::size_t mss) {
    const auto segmenter = Segmenter::create(headers, payload, mss);
    EXPECT_FALSE(segmenter);
    return segmenter.error();
  };
  const auto tcp = headers_of(vectors::kTcpIpv4);
  using Error = SegmentationError;
  EXPECT_EQ(error(tcp, 100, 0), Error::kMss);
  EXPECT_EQ(error(tcp, 100000, 65535 - 52 + 1), Error::kMss);
  EXPECT_TRUE(Segmenter::create(tcp, 100000, 65535 - 52));
  EXPECT_EQ(error(std::span(tcp).first(tcp.size() - 1), 100, 10), Error::kNotTcpOrUdp);
  EXPECT_EQ(error(from_hex(vectors::kTcpIpv4), 100, 10), Error::kHeaderEndsElsewhere);
  EXPECT_EQ(error(from_hex(vectors::kArp), 100, 10), Error::kNotTcpOrUdp);
  EXPECT_EQ(error(from_hex(vectors::kIpv6Fragment), 100, 10), Error::kNotTcpOrUdp);
  EXPECT_EQ(error(std::vector<std::byte>(193), 100, 10), Error::kHeaderTooLong);
  EXPECT_EQ(error({}, 0, 10), Error::kNotTcpOrUdp);
}

}  // namespace
}  // namespace softhca::ethernet
