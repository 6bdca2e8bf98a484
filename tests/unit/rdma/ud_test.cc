// UD: datagrams, their 40 bytes of GRH, Q_Keys, the GSI and multicast (IBTA 9.8.3, Annex A17).

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rdma/pair.h"

namespace softhca::rdma::testing {
namespace {

using ::testing::ElementsAre;
using enum WorkStatus;

class Ud : public ::testing::Test {
 protected:
  Ud() {
    pair.connect(QpType::kUd);
    pair.a.fill(0, 0x20000, 1);
  }
  SendRequest datagram(std::uint32_t length) {
    auto request = send(0, length);
    request.ud.dst_gid = pair.b.gid.gid;
    request.ud.dst_mac = pair.b.gid.mac;
    request.ud.qpn = Qpn(0x22);
    request.ud.qkey = 0x1111;
    request.ud.traffic_class = 0x28;
    return request;
  }
  void post_receive(std::uint32_t length = 5000) {
    pair.b.post_receive(*pair.qb, {End::sge(0x20000, length)}, 9);
  }
  const ReceiveCompletion& received() { return pair.b.hca.receives.at(0).completion; }
  Pair pair;
};

TEST_F(Ud, DatagramArrivesBehindFortyBytesWithTheIpv4HeaderAtTheirEnd) {
  for (const auto length : {0u, 1u, 63u, 1024u}) {
    post_receive();
    auto request = datagram(length);
    request.opcode = SendOpcode::kSendWithImmediate;
    request.immediate = 0x11223344;
    pair.a.post(*pair.qa, request);
    pair.drive();
    ASSERT_EQ(pair.b.hca.receives.size(), 1u);
    EXPECT_EQ(received().status, kSuccess);
    EXPECT_EQ(received().opcode, ReceiveOpcode::kSendWithImmediate);
    EXPECT_EQ(received().byte_count, 40 + length);
    EXPECT_EQ(received().source_qpn, Qpn(0x11));
    EXPECT_EQ(received().immediate, 0x11223344u);
    EXPECT_EQ(received().pkey, 0xFFFF);
    EXPECT_EQ(received().network, wire::NetworkHeader::kIpv4);
    EXPECT_EQ(std::memcmp(pair.a.at(0), pair.b.at(0x20000 + 40), length), 0);
    const auto* ip = pair.b.at(0x20000 + 20);
    EXPECT_EQ(ip[0], std::byte{0x45});
    EXPECT_EQ(ip[1], std::byte{0x28});
    EXPECT_EQ(util::load_be32(ip + 12), 0x0A000001u);
    EXPECT_EQ(util::load_be32(ip + 16), 0x0A000002u);
    pair.b.hca.receives.clear();
  }
}

TEST_F(Ud, DatagramOverIpv6BringsItsIpv6Header) {
  for (auto* end : {&pair.a, &pair.b}) {
    end->gid.gid.bytes.fill(std::byte{0});
    end->gid.gid.bytes[0] = std::byte{0xFD};
    end->gid.gid.bytes[15] = end == &pair.a ? std::byte{1} : std::byte{2};
    end->transport.gids().set(0, end->gid);
  }
  post_receive();
  pair.a.post(*pair.qa, datagram(100));
  pair.drive();
  ASSERT_EQ(pair.b.hca.receives.size(), 1u);
  EXPECT_EQ(received().network, wire::NetworkHeader::kIpv6);
  EXPECT_EQ(std::memcmp(pair.b.at(0x20000 + 8), &pair.a.gid.gid, 16), 0);
  EXPECT_EQ(std::memcmp(pair.b.at(0x20000 + 24), &pair.b.gid.gid, 16), 0);
  EXPECT_EQ(std::memcmp(pair.a.at(0), pair.b.at(0x20000 + 40), 100), 0);
}

TEST_F(Ud, VlanOfTheGidIsTaggedAndMatched) {
  for (auto* end : {&pair.a, &pair.b}) {
    end->gid.vlan_id = 5;
    end->transport.gids().set(0, end->gid);
  }
  post_receive();
  auto request = datagram(10);
  request.ud.vlan_priority = 3;
  pair.a.post(*pair.qa, request);
  pair.drive();
  ASSERT_EQ(pair.b.hca.receives.size(), 1u);
  EXPECT_EQ(received().vlan_tci, 3 << 13 | 5);
  // Another VLAN is another network.
  pair.b.gid.vlan_id = 6;
  pair.b.transport.gids().set(0, pair.b.gid);
  post_receive();
  pair.a.post(*pair.qa, datagram(10));
  pair.drive();
  EXPECT_EQ(pair.b.hca.receives.size(), 1u);
}

TEST_F(Ud, WrongQkeyIsDropped) {
  post_receive();
  auto request = datagram(10);
  request.ud.qkey = 0x2222;
  pair.a.post(*pair.qa, request);
  pair.drive();
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kSuccess));
  EXPECT_TRUE(pair.b.hca.receives.empty());
  EXPECT_EQ(pair.b.transport.counters().dropped_for(Drop::kQkey), 1u);
}

TEST_F(Ud, QkeyWithItsTopBitSetStandsForTheQpsOwn) {
  post_receive();
  auto request = datagram(10);
  request.ud.qkey = 0x80002222;
  pair.a.post(*pair.qa, request);
  pair.drive();
  EXPECT_EQ(pair.b.hca.receives.size(), 1u);
}

TEST_F(Ud, DatagramWithoutReceiveRequestIsDroppedAndCounted) {
  pair.a.post(*pair.qa, datagram(10));
  pair.drive();
  EXPECT_EQ(pair.b.transport.counters().dropped_for(Drop::kNoReceive), 1u);
  EXPECT_EQ(pair.b.counters.out_of_buffer, 1u);
}

TEST_F(Ud, DatagramAboveThePathMtuIsALocalLengthError) {
  pair.a.post(*pair.qa, datagram(1025));
  pair.drive();
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kLocalLength));
  EXPECT_EQ(pair.qa->state(), QpState::kSqError);
}

TEST_F(Ud, RdmaIsALocalOperationError) {
  pair.a.post(*pair.qa, write(0, 0, 8));
  pair.drive();
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kLocalQpOperation));
}

TEST_F(Ud, BufferWithoutRoomForTheFortyBytesIsALengthError) {
  post_receive(49);
  pair.a.post(*pair.qa, datagram(10));
  pair.drive();
  EXPECT_THAT(pair.b.hca.receive_statuses(), ElementsAre(kLocalLength));
}

TEST_F(Ud, QpnOneIsTheGsi) {
  pair.b.transport.set_gsi(Qpn(0x22));
  pair.a.transport.set_gsi(Qpn(0x11));
  post_receive();
  auto request = datagram(256);
  request.ud.qpn = Qpn(1);
  request.ud.qkey = 0x80010000;
  auto attributes = pair.qa->attributes();
  attributes.qkey = 0x80010000;
  ASSERT_TRUE(pair.a.transport.modify(*pair.qa, QpState::kRts, attributes));
  pair.a.post(*pair.qa, request);
  pair.drive();
  ASSERT_EQ(pair.b.hca.receives.size(), 1u);
  EXPECT_EQ(received().source_qpn, Qpn(1));
  // Without a GSI the frame is not taken.
  pair.b.transport.set_gsi(std::nullopt);
  post_receive();
  pair.a.post(*pair.qa, request);
  pair.drive();
  EXPECT_EQ(pair.b.hca.receives.size(), 1u);
}

TEST_F(Ud, SourceQpnOfTheDethCanBeSet) {
  auto attributes = pair.qa->attributes();
  attributes.deth_source_qpn = Qpn(1);
  ASSERT_TRUE(pair.a.transport.modify(*pair.qa, QpState::kRts, attributes));
  post_receive();
  pair.a.post(*pair.qa, datagram(10));
  pair.drive();
  EXPECT_EQ(received().source_qpn, Qpn(1));
}

TEST_F(Ud, MulticastGoesToEveryAttachedQp) {
  const auto group = Gid::from_ipv4(0xE1020304);
  QpOptions options;
  auto& third = pair.b.create_qp(Qpn(0x33), QpType::kUd, {}, options);
  Pair::to_rts(pair.b, third, pair.attributes_for(pair.b, pair.a, Qpn(0)));
  EXPECT_TRUE(pair.b.transport.attach(Qpn(0x22), group));
  EXPECT_TRUE(pair.b.transport.attach(Qpn(0x33), group));
  EXPECT_FALSE(pair.b.transport.attach(Qpn(0x33), group));
  post_receive();
  pair.b.post_receive(third, {End::sge(0x30000, 2000)});
  auto request = datagram(100);
  request.ud.dst_gid = group;
  request.ud.dst_mac = Mac::from_u64(0x01005E020304);
  request.ud.qpn = Qpn(0xFFFFFF);
  pair.a.post(*pair.qa, request);
  pair.drive();
  EXPECT_EQ(pair.b.hca.receives.size(), 2u);
  EXPECT_EQ(std::memcmp(pair.a.at(0), pair.b.at(0x30000 + 40), 100), 0);
  EXPECT_EQ(pair.b.transport.counters().rx_multicast_packets, 1u);
  EXPECT_TRUE(pair.b.transport.detach(Qpn(0x22), group));
  EXPECT_TRUE(pair.b.transport.detach(Qpn(0x33), group));
  EXPECT_FALSE(pair.b.transport.detach(Qpn(0x33), group));
}

TEST_F(Ud, BlockedLoopbackKeepsOwnMulticastAway) {
  const auto group = Gid::from_ipv4(0xE1020304);
  for (const bool block : {false, true}) {
    QpOptions options;
    options.block_multicast_loopback = block;
    auto& qp = pair.a.create_qp(Qpn(block ? 0x41 : 0x40), QpType::kUd, {}, options);
    Pair::to_rts(pair.a, qp, pair.attributes_for(pair.a, pair.b, Qpn(0)));
    pair.a.transport.attach(qp.qpn(), group);
    pair.a.post_receive(qp, {End::sge(0x30000, 2000)});
  }
  // The fabric brings it back to the port that sent it.
  pair.a.on_transmit = [&](End& from, const wire::Frame& frame) {
    from.transport.handle_frame(frame, pair.now);
  };
  auto request = datagram(100);
  request.ud.dst_gid = group;
  request.ud.dst_mac = Mac::from_u64(0x01005E020304);
  request.ud.qpn = Qpn(0xFFFFFF);
  pair.a.post(*pair.qa, request);
  pair.drive();
  ASSERT_EQ(pair.a.hca.receives.size(), 1u);
  EXPECT_EQ(pair.a.hca.receives[0].qpn, Qpn(0x40));
}

TEST_F(Ud, SourceEntryThatIsNotSetIsALocalError) {
  auto request = datagram(10);
  request.ud.src_gid_index = 7;
  pair.a.post(*pair.qa, request);
  pair.drive();
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kLocalQpOperation));
}

}  // namespace
}  // namespace softhca::rdma::testing
