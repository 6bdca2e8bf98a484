// CQE fields that describe the headers of a received frame: checksums (PRM 7.12.1.1), and VLAN
// tags, which the queue may strip (PRM 7.7).
#include <gtest/gtest.h>

#include <algorithm>

#include "connectx/ethernet/receive_host.h"
#include "util/endian.h"

namespace softhca::connectx::test {
namespace {

using namespace spec::connectx;

// Checksums --------------------------------------------------------------------------------------

class EthernetReceiveChecksum : public EthernetReceive,
                                public ::testing::WithParamInterface<std::tuple<bool, bool, bool>> {
};

TEST_P(EthernetReceiveChecksum, ChecksumFieldCoversIpHeaderAndPayload) {
  const auto [ipv6, udp, vlan] = GetParam();
  const FrameSpec spec{.ipv6 = ipv6, .udp = udp, .vlan_tci = vlan ? 0x2064 : -1, .payload = 301};
  auto frame = make_frame(spec);
  fix_checksums(frame, spec);
  host.post_receive(rqn, 2048);
  host.arrive(frame);
  const auto cqe = completion();
  EXPECT_EQ(cqe.get(cqe64::checksum), slow_sum(std::span(frame).subspan(vlan ? 18 : 14)));
  EXPECT_EQ(cqe.get(cqe64::l2_ok), 1u);
  EXPECT_EQ(cqe.get(cqe64::l3_ok), 1u);
  EXPECT_EQ(cqe.get(cqe64::l4_ok), 1u);
  EXPECT_EQ(cqe.get(cqe64::l3_hdr_type), ipv6 ? 1u : 2u);
  EXPECT_EQ(cqe.get(cqe64::l4_hdr_type), udp ? 2u : 4u);
  EXPECT_EQ(cqe.get(cqe64::ip_frag), 0u);
  EXPECT_EQ(cqe.get(cqe64::cv), vlan ? 1u : 0u);
}
INSTANTIATE_TEST_SUITE_P(Kinds, EthernetReceiveChecksum,
                         ::testing::Combine(::testing::Bool(), ::testing::Bool(),
                                            ::testing::Bool()));

TEST_F(EthernetReceive, WrongL4ChecksumIsNotOk) {
  const FrameSpec spec{.payload = 100};
  auto frame = make_frame(spec);
  fix_checksums(frame, spec);
  frame.back() ^= std::byte{1};
  host.post_receive(rqn, 2048);
  host.arrive(frame);
  const auto cqe = completion();
  EXPECT_EQ(cqe.get(cqe64::l3_ok), 1u);
  EXPECT_EQ(cqe.get(cqe64::l4_ok), 0u);
  EXPECT_EQ(cqe.get(cqe64::checksum), slow_sum(std::span(frame).subspan(14)));
}

TEST_F(EthernetReceive, ChecksumFieldCoversPaddingToo) {
  const FrameSpec spec{.udp = true, .payload = 3};
  auto frame = make_frame(spec);
  fix_checksums(frame, spec);
  ASSERT_EQ((frame.size() - 14) % 2, 1u);
  while (frame.size() < 70) frame.push_back(std::byte(frame.size()));
  host.post_receive(rqn, 2048);
  host.arrive(frame);
  const auto cqe = completion();
  EXPECT_EQ(cqe.get(cqe64::l4_ok), 1u);
  EXPECT_EQ(cqe.get(cqe64::checksum), slow_sum(std::span(frame).subspan(14)));
}

TEST_F(EthernetReceive, UnrecognizedPacketHasNoHeaderTypes) {
  Bytes arp(60);
  std::ranges::fill(std::span(arp).first(6), std::byte{0xFF});
  util::store_be16(arp.data() + 12, 0x0806);
  host.post_receive(rqn, 2048);
  host.arrive(arp);
  const auto cqe = completion();
  EXPECT_EQ(cqe.get(cqe64::l2_ok), 1u);
  EXPECT_EQ(cqe.get(cqe64::l3_ok), 0u);
  EXPECT_EQ(cqe.get(cqe64::l4_ok), 0u);
  EXPECT_EQ(cqe.get(cqe64::l3_hdr_type), 0u);
  EXPECT_EQ(cqe.get(cqe64::l4_hdr_type), 0u);
}

// VLAN -------------------------------------------------------------------------------------------

TEST_F(EthernetReceive, VlanTagIsStrippedAndReported) {
  const auto buffer = host.post_receive(rqn, 2048);
  host.arrive(make_frame({.vlan_tci = 0xB064, .payload = 200}));
  const auto expected = make_frame({.payload = 200});
  EXPECT_EQ(host.read(buffer, expected.size()), expected);
  const auto cqe = completion();
  EXPECT_EQ(cqe.get(cqe64::byte_cnt), expected.size());
  EXPECT_EQ(cqe.get(cqe64::cv), 1u);
  EXPECT_EQ(cqe.get(cqe64::up), 5u);
  EXPECT_EQ(cqe.get(cqe64::cfi), 1u);
  EXPECT_EQ(cqe.get(cqe64::vid), 100u);
}

TEST_F(EthernetReceive, VlanTagStaysIfStrippingIsDisabled) {
  EXPECT_TRUE(modify(RqState::RDY, RqState::RDY, 2, true).ok());
  const auto buffer = host.post_receive(rqn, 2048);
  const auto frame = make_frame({.vlan_tci = 0xB064, .payload = 200});
  host.arrive(frame);
  EXPECT_EQ(host.read(buffer, frame.size()), frame);
  EXPECT_EQ(completion().get(cqe64::cv), 0u);
}

// cqe_checksum_full: the sum covers all bytes after the Ethernet header, as delivered.
TEST_F(EthernetReceive, ATagThatStaysCountsInTheChecksum) {
  EXPECT_TRUE(modify(RqState::RDY, RqState::RDY, 2, true).ok());
  host.post_receive(rqn, 2048);
  const auto frame = make_frame({.vlan_tci = 0xB064, .payload = 200});
  host.arrive(frame);
  EXPECT_EQ(completion().get(cqe64::checksum), slow_sum(std::span(frame).subspan(14)));
}

TEST_F(EthernetReceive, AnInnerTagCountsInTheChecksum) {
  auto frame = make_frame({.vlan_tci = 7, .payload = 200});
  const auto inner = frame;
  const Bytes tag{std::byte{0x81}, std::byte{0}, std::byte{0}, std::byte{9}};
  frame.insert(frame.begin() + 12, tag.begin(), tag.end());
  host.post_receive(rqn, 2048);
  host.arrive(frame);
  EXPECT_EQ(completion().get(cqe64::checksum), slow_sum(std::span(inner).subspan(14)));
}

TEST_F(EthernetReceive, OnlyTheOuterTagIsStripped) {
  auto frame = make_frame({.vlan_tci = 7, .payload = 50});
  const auto inner = frame;
  const Bytes tag{std::byte{0x81}, std::byte{0}, std::byte{0}, std::byte{9}};
  frame.insert(frame.begin() + 12, tag.begin(), tag.end());
  const auto buffer = host.post_receive(rqn, 2048);
  host.arrive(frame);
  EXPECT_EQ(host.read(buffer, inner.size()), inner);
  EXPECT_EQ(completion().get(cqe64::vid), 9u);
}

}  // namespace
}  // namespace softhca::connectx::test
