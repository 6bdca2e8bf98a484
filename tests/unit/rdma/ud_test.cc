// UD: datagrams, their 40 bytes of GRH, Q_Keys, the GSI and multicast (IBTA 9.8.3, Annex A17).

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rdma/pair.h"

namespace softhca::rdma::test {
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
    auto request = datagram_to(pair.b, 0, length);
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

/// The document of this HCA reserves no space for a GRH.
TEST(UdWithoutHeader, DatagramsBeginAtTheFirstByteOfTheReceive) {
  Pair pair;
  pair.qp_options.datagram_header = false;
  pair.connect(QpType::kUd);
  pair.a.fill(0, 0x1000, 1);
  for (unsigned i = 0; i != 5; ++i) {
    pair.b.post_receive(*pair.qb, {End::sge(0x20000, 100)}, 9);
    auto request = datagram_to(pair.b, 100 * i, 100);
    pair.a.post(*pair.qa, request);
    pair.drive();
    ASSERT_EQ(pair.b.hca.receives.size(), i + 1);
    EXPECT_EQ(pair.b.hca.receives[i].completion.status, kSuccess);
    EXPECT_EQ(pair.b.hca.receives[i].completion.byte_count, 100u);
    EXPECT_EQ(std::memcmp(pair.a.at(100 * i), pair.b.at(0x20000), 100), 0);
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
  // Another VLAN is a separate network.
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

TEST_F(Ud, WrongQkeyIsDroppedAfterARightOneToo) {
  post_receive();
  post_receive();
  pair.a.post(*pair.qa, datagram(10));
  pair.drive();
  ASSERT_EQ(pair.b.hca.receives.size(), 1u);
  auto request = datagram(10);
  request.ud.qkey = 0x2222;
  pair.a.post(*pair.qa, request);
  pair.drive();
  EXPECT_EQ(pair.b.hca.receives.size(), 1u);
  EXPECT_EQ(pair.b.transport.counters().dropped_for(Drop::kQkey), 1u);
}

// Devices with a destination cache number the destinations (UdDestination::number); other devices
// do not.
TEST_F(Ud, ADatagramTakesTheWayOfItsOwnDestination) {
  const auto sent_with = [&](std::uint8_t traffic_class, std::uint64_t number) {
    post_receive();
    auto request = datagram(10);
    request.ud.traffic_class = traffic_class;
    request.ud.number = number;
    pair.a.post(*pair.qa, request);
    pair.drive();
    return pair.b.at(0x20000 + 20)[1];
  };
  for (const std::uint64_t step : {0, 1}) {
    EXPECT_EQ(sent_with(0x28, step), std::byte{0x28});
    EXPECT_EQ(sent_with(0x48, 2 * step), std::byte{0x48});
    EXPECT_EQ(sent_with(0x48, 2 * step), std::byte{0x48});
    EXPECT_EQ(sent_with(0x28, 3 * step), std::byte{0x28});
  }
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

// IBTA 9.9.3, faults of class D: any station may send a datagram of any length.
TEST_F(Ud, ADatagramTooLongForItsReceiveIsDroppedAndTheQpLivesOn) {
  post_receive(49);
  for (const std::uint32_t length : {10, 1024, 9}) {
    pair.a.post(*pair.qa, datagram(length));
    pair.drive();
  }
  EXPECT_THAT(pair.b.hca.receive_statuses(), ElementsAre(kSuccess));
  EXPECT_EQ(received().byte_count, 49u);
  EXPECT_EQ(received().cookie, 9u) << "the receive serves the next datagram";
  EXPECT_EQ(pair.qb->state(), QpState::kRts);
  EXPECT_EQ(pair.b.counters.resp_local_length_error, 2u);
  EXPECT_EQ(pair.b.transport.counters().dropped_for(Drop::kNoReceive), 2u);
}

// The port of a station may take jumbo frames, but no InfiniBand packet has so large a payload.
TEST_F(Ud, ADatagramAboveTheLargestMtuIsDroppedAndItsReceiveStays) {
  post_receive();
  for (const std::uint32_t length : {4100, 4096}) {
    wire::IbAddress address;
    address.source_gid = pair.a.gid.gid;
    address.source_mac = pair.a.gid.mac;
    address.destination_gid = pair.b.gid.gid;
    address.destination_mac = pair.b.gid.mac;
    wire::Bth bth;
    bth.opcode = wire::Opcode::UD_SEND_ONLY;
    bth.dest_qp = Qpn(0x22);
    wire::ExtHeaders ext;
    ext.deth.qkey = wire::QKey(0x1111);
    ext.deth.src_qp = Qpn(0x11);
    const std::vector<std::byte> data(length, std::byte{0xEE});
    wire::Frame frame;
    wire::IbHeader(address).emit(bth, ext, length, frame);
    (void)frame.add_segment(data);
    EXPECT_TRUE(pair.b.transport.handle_frame(frame, pair.now));
  }
  EXPECT_THAT(pair.b.hca.receive_statuses(), ElementsAre(kSuccess));
  EXPECT_EQ(received().byte_count, 40u + 4096u);
  EXPECT_EQ(pair.b.transport.counters().dropped_for(Drop::kMalformed), 1u);
}

TEST_F(Ud, ADatagramTooLongForItsReceiveLeavesTheGsiAlone) {
  for (auto* qp : {pair.qa, pair.qb}) {
    auto& end = qp == pair.qa ? pair.a : pair.b;
    end.transport.set_gsi(qp->qpn());
    auto attributes = qp->attributes();
    attributes.qkey = 0x80010000;
    ASSERT_TRUE(end.transport.modify(*qp, QpState::kRts, attributes));
  }
  post_receive(40 + 256);
  for (const std::uint32_t length : {257, 256}) {
    auto request = datagram(length);
    request.ud.qpn = Qpn(1);
    request.ud.qkey = 0x80010000;
    pair.a.post(*pair.qa, request);
    pair.drive();
  }
  EXPECT_THAT(pair.b.hca.receive_statuses(), ElementsAre(kSuccess));
  EXPECT_EQ(pair.qb->state(), QpState::kRts);
}

TEST_F(Ud, APieceThatMayNotBeWrittenIsAProtectionErrorAndStaysAsItIs) {
  MemoryKey::Attributes attributes = pair.b.keys.find(kKey)->attributes();
  attributes.key = MKey(0x2222'56);
  attributes.access = kLocalRead;
  pair.b.keys.insert(attributes);
  const std::vector<std::byte> before(pair.b.at(0x20000), pair.b.at(0x20000) + 100);
  pair.b.post_receive(*pair.qb, {End::sge(0x20000, 100, MKey(0x2222'56))}, 9);
  pair.a.post(*pair.qa, datagram(10));
  pair.drive();
  EXPECT_THAT(pair.b.hca.receive_statuses(), ElementsAre(kLocalProtection));
  EXPECT_EQ(pair.qb->state(), QpState::kError);
  EXPECT_EQ(std::memcmp(pair.b.at(0x20000), before.data(), before.size()), 0);
}

/// A key whose wire format is 512-byte blocks, each followed by T10-DIF.
MKey sign(KeyTable& keys) {
  MemoryKey::Attributes attributes = keys.find(kKey)->attributes();
  attributes.key = MKey(0x2222'56);
  attributes.length = 1024;
  attributes.indirect = {{kKeyStart + 0x20000, 1024, kKey}};
  attributes.start = 0;
  auto key = std::make_unique<MemoryKey>(attributes);
  SignatureRules rules;
  rules.wire.block = 512;
  rules.check_mask = 0xFF;
  key->make_signable();
  key->signature()->set(rules);
  key->signature()->enable(true);
  key->refresh();
  return keys.insert(std::move(key)).key();
}

TEST_F(Ud, AWrongBlockThatEndsInTheFortyBytesIsReportedBeforeTheCompletion) {
  class Values : public SignatureValues {
   public:
    const Value* find_value(std::uint32_t) const override { return &value; }
    Value value{.pd = kPd};
  } values;
  pair.b.keys.set_signature_values(&values);
  pair.b.keys.signature_errors().reserve();
  const auto key = sign(pair.b.keys);
  pair.b.post_receive(*pair.qb, {{520 - 40, 200, key}}, 9);  // leaves the next block unfinished
  pair.a.post(*pair.qa, datagram(100));
  pair.drive();
  EXPECT_THAT(pair.b.hca.receive_statuses(), ElementsAre(kSuccess));
  ASSERT_EQ(pair.b.hca.signature_errors.size(), 1u);
  EXPECT_EQ(pair.b.hca.signature_errors[0].key, key);
  EXPECT_EQ(std::memcmp(pair.a.at(0), pair.b.at(0x20000 + 512), 100), 0);
}

TEST_F(Ud, ADatagramGoesOverTheBordersOfPieces) {
  for (const std::uint32_t first : {1u, 39u, 40u, 41u, 60u}) {
    pair.b.post_receive(*pair.qb, {End::sge(0x20000, first), End::sge(0x24000, 200 - first)}, 9);
    pair.a.post(*pair.qa, datagram(100));
    pair.drive();
    ASSERT_EQ(pair.b.hca.receives.size(), 1u);
    EXPECT_EQ(received().status, kSuccess);
    std::vector<std::byte> bytes(pair.b.at(0x20000), pair.b.at(0x20000) + first);
    bytes.insert(bytes.end(), pair.b.at(0x24000), pair.b.at(0x24000) + 140 - first);
    EXPECT_EQ(std::memcmp(bytes.data() + 40, pair.a.at(0), 100), 0) << first;
    EXPECT_EQ(bytes[20], std::byte{0x45}) << first;
    pair.b.hca.receives.clear();
  }
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
  // Without a GSI the frame is dropped.
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
  EXPECT_TRUE(pair.b.transport.groups().attach(Qpn(0x22), group));
  EXPECT_TRUE(pair.b.transport.groups().attach(Qpn(0x33), group));
  EXPECT_FALSE(pair.b.transport.groups().attach(Qpn(0x33), group));
  post_receive();
  pair.b.post_receive(third, {End::sge(0x30000, 2000)});
  auto request = datagram(100);
  request.ud.dst_gid = group;
  request.ud.dst_mac = Mac::from_u64(0x01005E020304);
  request.ud.qpn = Qpn(0xFFFFFF);
  pair.a.post(*pair.qa, request);
  pair.drive();
  EXPECT_EQ(pair.b.hca.receives.size(), 2u);
  EXPECT_GT(pair.b.keys.work().drain(), 0) << "the second copy is not the sender's to pay";
  EXPECT_EQ(std::memcmp(pair.a.at(0), pair.b.at(0x30000 + 40), 100), 0);
  EXPECT_EQ(pair.b.transport.counters().rx_multicast_packets, 1u);
  EXPECT_TRUE(pair.b.transport.groups().detach(Qpn(0x22), group));
  EXPECT_TRUE(pair.b.transport.groups().detach(Qpn(0x33), group));
  EXPECT_FALSE(pair.b.transport.groups().detach(Qpn(0x33), group));
}

TEST_F(Ud, BlockedLoopbackKeepsOwnMulticastAway) {
  const auto group = Gid::from_ipv4(0xE1020304);
  for (const bool block : {false, true}) {
    QpOptions options;
    options.block_multicast_loopback = block;
    auto& qp = pair.a.create_qp(Qpn(block ? 0x41 : 0x40), QpType::kUd, {}, options);
    Pair::to_rts(pair.a, qp, pair.attributes_for(pair.a, pair.b, Qpn(0)));
    pair.a.transport.groups().attach(qp.qpn(), group);
    pair.a.post_receive(qp, {End::sge(0x30000, 2000)});
  }
  // The fabric returns the frame to the port that sent it.
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

// Annex A17 maps groups to the MACs of RFC 1112 and RFC 2464. A VLAN is a separate network.
TEST_F(Ud, MulticastIsReceivedAtTheMacOfItsGroupAndInTheVlansOfThePort) {
  auto v6 = Gid{};
  v6.bytes[0] = std::byte{0xFF};
  v6.bytes[1] = std::byte{0x12};
  v6.bytes[12] = std::byte{0xA1};
  v6.bytes[15] = std::byte{0xB2};
  struct Case {
    Gid group;
    std::uint64_t mac;
    std::optional<std::uint16_t> vlan;
    bool heard;
  };
  const auto v4 = Gid::from_ipv4(0xE1820304);
  for (const auto& [group, mac, vlan, heard] :
       {Case{v4, 0x01005E020304, {}, true}, Case{v4, 0x01005E820304, {}, false},
        Case{v4, 0x3333E1820304, {}, false}, Case{v4, 0x01005E020304, 5, false},
        Case{v4, 0x01005E020304, 6, true}, Case{v6, 0x3333A10000B2, {}, true},
        Case{v6, 0x01005E0000B2, {}, false}}) {
    Pair fresh;
    fresh.connect(QpType::kUd);
    auto source = fresh.a.gid;
    if (!group.is_ipv4()) source.gid.bytes.fill(std::byte{0xFD});
    source.vlan_id = vlan;
    fresh.a.transport.gids().set(0, source);
    auto tagged = fresh.b.gid;
    tagged.vlan_id = 6;
    fresh.b.transport.gids().set(1, tagged);
    ASSERT_TRUE(fresh.b.transport.groups().attach(fresh.qb->qpn(), group));
    fresh.b.post_receive(*fresh.qb, {End::sge(0x20000, 2000)});
    auto request = datagram(100);
    request.ud.dst_gid = group;
    request.ud.dst_mac = Mac::from_u64(mac);
    request.ud.qpn = Qpn(0xFFFFFF);
    fresh.a.post(*fresh.qa, request);
    fresh.drive();
    EXPECT_EQ(fresh.b.hca.receives.size(), heard ? 1u : 0u)
        << std::hex << mac << " vlan " << vlan.value_or(0);
    EXPECT_EQ(fresh.b.transport.counters().rx_multicast_packets, heard ? 1u : 0u);
  }
}

TEST_F(Ud, GroupsAndTheirMembersAreBoundedAndGoWithTheirQps) {
  auto& transport = pair.b.transport;
  const auto group = [](std::uint32_t i) { return Gid::from_ipv4(0xE1000000 + i); };
  const auto add = [&](std::uint32_t number) -> QueuePair& {
    return pair.b.create_qp(Qpn(number), QpType::kUd, {}, {});
  };
  auto& first = add(0x40);
  for (const auto number : {0x41u, 0x42u, 0x43u}) add(number);
  // The pair's transports have room for 4 groups with 3 members each.
  for (std::uint32_t i = 0; i < 4; ++i) EXPECT_TRUE(transport.groups().attach(Qpn(0x40), group(i)));
  EXPECT_FALSE(transport.groups().attach(Qpn(0x40), group(4)));
  EXPECT_TRUE(transport.groups().attach(Qpn(0x41), group(0)));
  EXPECT_TRUE(transport.groups().attach(Qpn(0x42), group(0)));
  EXPECT_FALSE(transport.groups().attach(Qpn(0x43), group(0)));
  transport.destroy_qp(first);
  EXPECT_EQ(transport.groups().count(), 1u) << "a group without members is none";
  EXPECT_TRUE(transport.groups().attach(Qpn(0x43), group(0)));
  EXPECT_TRUE(transport.groups().attach(Qpn(0x43), group(4)));
}

// IBTA 9.6.1.2: a packet for this port and for none of its QPs is dropped. Packets for other ports
// are left alone.
TEST_F(Ud, APacketForAQpThatDoesNotExistIsDroppedAndCounted) {
  std::vector<bool> taken;
  pair.a.on_transmit = [&](End&, const wire::Frame& frame) {
    taken.push_back(pair.b.transport.handle_frame(frame, pair.now));
  };
  auto request = datagram(100);
  request.ud.qpn = Qpn(0x99);
  pair.a.post(*pair.qa, request);
  request.ud.dst_gid = Gid::from_ipv4(0x0A000077);
  pair.a.post(*pair.qa, request);
  request.ud.dst_gid = pair.b.gid.gid;
  request.ud.dst_mac = Mac::from_u64(0x020000000077);
  pair.a.post(*pair.qa, request);
  pair.drive();
  EXPECT_THAT(taken, ElementsAre(true, false, false)) << "what is for another address is not ours";
  EXPECT_EQ(pair.b.transport.counters().dropped_for(Drop::kNoQp), 1u);
}

TEST_F(Ud, SourceEntryThatIsNotSetIsALocalError) {
  auto request = datagram(10);
  request.ud.src_gid_index = 7;
  pair.a.post(*pair.qa, request);
  pair.drive();
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kLocalQpOperation));
}

}  // namespace
}  // namespace softhca::rdma::test
