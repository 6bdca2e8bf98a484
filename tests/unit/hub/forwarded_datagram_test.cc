// Datagrams that the hub forwards in rings.
#include "hub/forwarded_datagram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "hub/link_note.h"

namespace softhca::hub {
namespace {

const auto kMac = wire::MacAddress::from_u64(0x025FCB000007);

std::vector<std::byte> bytes_of(const wire::Frame& frame) {
  std::vector<std::byte> bytes(frame.size());
  frame.copy_range(0, bytes);
  return bytes;
}

TEST(ForwardedDatagramTest, IsReadAsItWasWritten) {
  std::vector<std::byte> packet(280, std::byte{0x5a});
  packet.back() = std::byte{1};
  ForwardedDatagram written{.to = wire::Gid::from_ipv4(192, 0, 2, 1), .datagram = {}};
  written.datagram = {.from = wire::Gid::from_ipv4(192, 0, 2, 9),
                      .source_port = 0xC123,
                      .traffic_class = 0x62,
                      .hop_limit = 61,
                      .packet = packet};
  wire::Frame frame;
  written.write(kMac, frame);
  const auto bytes = bytes_of(frame);
  EXPECT_EQ(bytes.size(), ForwardedDatagram::kHeaderSize + packet.size());
  EXPECT_EQ(LinkNote::parse(bytes)->to, kMac);
  const auto read = ForwardedDatagram::parse(bytes);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->to, written.to);
  EXPECT_EQ(read->datagram.from, written.datagram.from);
  EXPECT_EQ(read->datagram.source_port, 0xC123);
  EXPECT_EQ(read->datagram.traffic_class, 0x62);
  EXPECT_EQ(read->datagram.hop_limit, 61);
  EXPECT_TRUE(std::ranges::equal(read->datagram.packet, packet));
}

TEST(ForwardedDatagramTest, OtherFramesAreNone) {
  EXPECT_FALSE(ForwardedDatagram::parse({}));
  for (const auto kind : {LinkNote::Kind::kGone, LinkNote::Kind::kDatagram}) {
    auto bytes = bytes_of(LinkNote{.to = kMac, .from = kMac, .kind = kind}.frame());
    bytes.resize(ForwardedDatagram::kHeaderSize);
    EXPECT_FALSE(ForwardedDatagram::parse(bytes)) << "without a packet";
    bytes.resize(ForwardedDatagram::kHeaderSize + ForwardedDatagram::kPacketMax);
    EXPECT_EQ(ForwardedDatagram::parse(bytes).has_value(), kind == LinkNote::Kind::kDatagram);
    bytes.push_back({});
    EXPECT_FALSE(ForwardedDatagram::parse(bytes)) << "too long";
  }
}

}  // namespace
}  // namespace softhca::hub
