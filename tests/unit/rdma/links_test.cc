// One transport on every link: RoCEv2, RoCEv1, and InfiniBand with LRH alone or LRH and GRH. The
// sources come from the GID table, or each QP has its own address.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rdma/pair.h"

namespace softhca::rdma::test {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using enum WorkStatus;

struct Way {
  Joined joined;
  bool own_sources;
};

std::string name_of(const ::testing::TestParamInfo<Way>& info) {
  constexpr const char* kNames[] = {"RoceV2", "RoceV1", "Local", "Global"};
  return std::string(kNames[static_cast<std::size_t>(info.param.joined)]) +
         (info.param.own_sources ? "OwnSources" : "");
}

std::vector<Way> all_ways() {
  std::vector<Way> ways;
  for (const auto joined : kAllJoins) {
    for (const bool own : {false, true}) ways.push_back({joined, own});
  }
  return ways;
}

class Links : public ::testing::TestWithParam<Way> {
 protected:
  void connect(Pair& pair, QpType type) {
    if (GetParam().own_sources) {
      // The port has neither a GID table nor a LID.
      for (auto* end : {&pair.a, &pair.b}) {
        end->gid.lid = end->link.lid;
        end->transport.gids().clear_all();
        end->transport.set_link_attributes({});
      }
    }
    pair.connect(type);
  }
  Path with_source(Path path, const End& from) const {
    if (GetParam().own_sources) path.own_source = from.gid;
    return path;
  }
  void adjust(Pair& pair) {
    pair.adjust = [&pair, this](QpAttributes& attributes) {
      const auto& from = attributes.remote_qpn == Qpn(0x22) ? pair.a : pair.b;
      attributes.path = with_source(attributes.path, from);
    };
  }
};

TEST_P(Links, ReliableOperationsMoveTheirData) {
  Pair pair({}, 1, GetParam().joined);
  adjust(pair);
  connect(pair, QpType::kRc);
  pair.a.fill(0, 0x10000, 1);
  pair.b.fill(0x80000, 0x10000, 2);
  pair.b.store64(0x9F000, 40);
  pair.b.post_receive(*pair.qb, {End::sge(0x20000, 9000)});
  pair.a.post(*pair.qa, send(0, 9000));
  pair.a.post(*pair.qa, write(0x100, 0x40000, 5001));
  pair.a.post(*pair.qa, read(0x60000, 0x80000, 7003));
  pair.a.post(*pair.qa, fetch_add(0x70000, 0x9F000, 2));
  pair.drive();
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kSuccess, kSuccess, kSuccess, kSuccess));
  EXPECT_THAT(pair.b.hca.receive_statuses(), ElementsAre(kSuccess));
  EXPECT_EQ(std::memcmp(pair.a.at(0), pair.b.at(0x20000), 9000), 0);
  EXPECT_EQ(std::memcmp(pair.a.at(0x100), pair.b.at(0x40000), 5001), 0);
  EXPECT_EQ(std::memcmp(pair.a.at(0x60000), pair.b.at(0x80000), 7003), 0);
  EXPECT_EQ(pair.a.load64(0x70000), 40u);
  EXPECT_EQ(pair.b.load64(0x9F000), 42u);
}

TEST_P(Links, ReliableOperationsSurviveLosses) {
  Pair pair({.loss = 0.05, .duplicate = 0.02, .late = 0.02}, 7, GetParam().joined);
  adjust(pair);
  connect(pair, QpType::kRc);
  pair.a.fill(0, 0x40000, 3);
  for (unsigned i = 0; i < 40; ++i) {
    pair.a.post(*pair.qa, write(i * 0x1000, 0x100000 + i * 0x1000, 0x1000));
    pair.a.post(*pair.qa, read(0x200000 + i * 0x1000, 0x100000 + i * 0x1000, 0x1000));
  }
  pair.drive();
  EXPECT_THAT(pair.a.hca.send_statuses(), Each(kSuccess));
  EXPECT_EQ(std::memcmp(pair.a.at(0), pair.b.at(0x100000), 40 * 0x1000), 0);
  EXPECT_EQ(std::memcmp(pair.a.at(0), pair.a.at(0x200000), 40 * 0x1000), 0);
}

TEST_P(Links, UnreliableMessagesArrive) {
  Pair pair({}, 1, GetParam().joined);
  adjust(pair);
  connect(pair, QpType::kUc);
  pair.a.fill(0, 0x10000, 1);
  pair.b.post_receive(*pair.qb, {End::sge(0x20000, 9000)});
  pair.a.post(*pair.qa, send(0, 9000));
  pair.a.post(*pair.qa, write(0, 0x40000, 3000));
  pair.drive();
  EXPECT_THAT(pair.b.hca.receive_statuses(), ElementsAre(kSuccess));
  EXPECT_EQ(std::memcmp(pair.a.at(0), pair.b.at(0x20000), 9000), 0);
  EXPECT_EQ(std::memcmp(pair.a.at(0), pair.b.at(0x40000), 3000), 0);
}

/// IBTA 11.4.1.2 and 11.4.2.1: the GRH precedes the payload. Without a GRH its 40 bytes are left
/// unchanged.
TEST_P(Links, DatagramsNameTheirSource) {
  Pair pair({}, 1, GetParam().joined);
  adjust(pair);
  connect(pair, QpType::kUd);
  pair.a.fill(0, 0x1000, 1);
  std::memset(pair.b.at(0x20000), 0xEE, 40);
  pair.b.post_receive(*pair.qb, {End::sge(0x20000, 2000)});
  auto request = send(0, 300);
  static_cast<Path&>(request.ud) = with_source(pair.path_to(pair.b), pair.a);
  request.ud.service_level = 5;
  request.ud.qpn = Qpn(0x22);
  request.ud.qkey = 0x1111;
  pair.a.post(*pair.qa, request);
  pair.drive();
  ASSERT_THAT(pair.b.hca.receive_statuses(), ElementsAre(kSuccess));
  const auto& completion = pair.b.hca.receives[0].completion;
  EXPECT_EQ(completion.byte_count, 340u);
  EXPECT_EQ(completion.source_qpn, Qpn(0x11));
  EXPECT_EQ(std::memcmp(pair.a.at(0), pair.b.at(0x20000 + 40), 300), 0);
  const auto* grh = pair.b.at(0x20000);
  if (GetParam().joined == Joined::kLocal) {
    EXPECT_EQ(completion.network, wire::NetworkHeader::kLrh);
    EXPECT_EQ(grh[0], std::byte{0xEE});
    EXPECT_EQ(grh[39], std::byte{0xEE});
  } else if (GetParam().joined == Joined::kRoceV2) {
    EXPECT_EQ(completion.network, wire::NetworkHeader::kIpv4);
    EXPECT_EQ(grh[20], std::byte{0x45});
  } else {
    EXPECT_EQ(completion.network, wire::NetworkHeader::kGrh);
    EXPECT_EQ(std::memcmp(grh + 8, &pair.a.gid.gid, 16), 0);
    EXPECT_EQ(std::memcmp(grh + 24, &pair.b.gid.gid, 16), 0);
  }
  const bool infiniband =
      GetParam().joined == Joined::kLocal || GetParam().joined == Joined::kGlobal;
  EXPECT_EQ(completion.source_lid, infiniband ? pair.a.link.lid : Lid(0));
  EXPECT_EQ(completion.service_level, infiniband ? 5 : 0);
}

INSTANTIATE_TEST_SUITE_P(All, Links, ::testing::ValuesIn(all_ways()), name_of);

// InfiniBand -------------------------------------------------------------------------------------

class InfinibandLink : public ::testing::Test {
 protected:
  InfinibandLink() {
    pair.keep_sent = true;
    pair.a.fill(0, 0x1000, 1);
  }
  void write_and_expect(WorkStatus status) {
    pair.a.post(*pair.qa, write(0, 0x40000, 100));
    pair.drive();
    ASSERT_FALSE(pair.a.hca.sends.empty());
    EXPECT_EQ(pair.a.hca.sends.back().status, status);
  }
  Pair pair{{}, 1, Joined::kLocal};
};

TEST_F(InfinibandLink, PacketsCarryServiceLevelAndTheLaneItMapsTo) {
  pair.a.link.virtual_lanes[3] = 6;
  pair.a.transport.set_link_attributes(pair.a.link);
  pair.adjust = [](QpAttributes& attributes) { attributes.path.service_level = 3; };
  pair.connect();
  write_and_expect(kSuccess);
  const auto& request = pair.sent[0].packet.address;
  EXPECT_EQ(request.encapsulation, wire::Encapsulation::kLocal);
  EXPECT_EQ(request.source_lid, Lid(0x50));
  EXPECT_EQ(request.destination_lid, Lid(0x60));
  EXPECT_EQ(request.service_level, 3);
  EXPECT_EQ(request.virtual_lane, 6);
  EXPECT_EQ(pair.sent[1].packet.address.virtual_lane, 0) << "the peer has its own table";
}

TEST_F(InfinibandLink, ServiceLevelWithoutADataLaneIsNotSent) {
  pair.a.link.virtual_lanes[3] = 15;
  pair.a.transport.set_link_attributes(pair.a.link);
  pair.connect(QpType::kUd);
  auto request = send(0, 10);
  static_cast<Path&>(request.ud) = pair.path_to(pair.b);
  request.ud.service_level = 3;
  pair.a.post(*pair.qa, request);
  pair.drive();
  ASSERT_EQ(pair.a.hca.sends.size(), 1u);
  EXPECT_EQ(pair.a.hca.sends[0].reason, Reason::kNoVirtualLane);
  EXPECT_TRUE(pair.sent.empty());
}

/// IBTA 4.1.3: the low LMC bits of a port's LIDs are free.
TEST_F(InfinibandLink, PathBitsAreTheLowBitsOfTheSourceLid) {
  for (auto* end : {&pair.a, &pair.b}) {
    end->link.lmc = 2;
    end->transport.set_link_attributes(end->link);
  }
  pair.adjust = [](QpAttributes& attributes) {
    const bool of_a = attributes.remote_qpn == Qpn(0x22);
    attributes.path.path_bits = of_a ? 7 : 1;  // bit 2 is not free
    attributes.path.dst_lid = of_a ? Lid(0x61) : Lid(0x53);
  };
  pair.connect();
  pair.b.post_receive(*pair.qb, {End::sge(0x20000, 100)});
  pair.a.post(*pair.qa, send(0, 100));
  write_and_expect(kSuccess);
  EXPECT_EQ(pair.sent[0].packet.address.source_lid, Lid(0x53));
  ASSERT_EQ(pair.b.hca.receives.size(), 1u);
  EXPECT_EQ(pair.b.hca.receives[0].completion.path_bits, 1);
  EXPECT_EQ(pair.b.hca.receives[0].completion.source_lid, Lid(0x53));
}

TEST_F(InfinibandLink, PacketsForAnotherLidAreNotOurs) {
  pair.adjust = [](QpAttributes& attributes) {
    if (attributes.remote_qpn == Qpn(0x22)) attributes.path.dst_lid = Lid(0x61);
    attributes.retry_count = 1;
  };
  pair.connect();
  write_and_expect(kTransportRetryExceeded);
  EXPECT_EQ(pair.b.transport.counters().rx_packets, 0u);
}

TEST_F(InfinibandLink, PacketsOfAnotherLidAreNotThePeers) {
  pair.adjust = [](QpAttributes& attributes) {
    if (attributes.remote_qpn == Qpn(0x11)) attributes.path.dst_lid = Lid(0x51);
    attributes.retry_count = 1;
  };
  pair.connect();
  write_and_expect(kTransportRetryExceeded);
  EXPECT_EQ(pair.b.transport.counters().dropped_for(Drop::kSource), 2u);
}

TEST_F(InfinibandLink, APathWithAGrhTakesNoPacketsWithoutOne) {
  pair.adjust = [](QpAttributes& attributes) {
    attributes.path.global = attributes.remote_qpn == Qpn(0x11);
    attributes.retry_count = 1;
  };
  pair.connect();
  write_and_expect(kTransportRetryExceeded);
  EXPECT_EQ(pair.b.transport.counters().dropped_for(Drop::kSource), 2u);
}

TEST_F(InfinibandLink, AGrhForAnotherGidIsNotOurs) {
  pair.adjust = [](QpAttributes& attributes) {
    attributes.path.global = true;
    attributes.retry_count = 1;
    if (attributes.remote_qpn == Qpn(0x22)) attributes.path.dst_gid.bytes[15] = std::byte{9};
  };
  pair.connect();
  write_and_expect(kTransportRetryExceeded);
  EXPECT_EQ(pair.b.transport.counters().rx_packets, 0u);
}

TEST_F(InfinibandLink, ALidThatChangesIsInTheNextPacket) {
  pair.connect();
  write_and_expect(kSuccess);
  pair.sent.clear();
  pair.a.link.lid = Lid(0x77);
  pair.a.transport.set_link_attributes(pair.a.link);
  pair.a.post(*pair.qa, write(0, 0x40000, 100));
  pair.a.run(pair.now);
  pair.carry();
  ASSERT_FALSE(pair.sent.empty());
  EXPECT_EQ(pair.sent[0].packet.address.source_lid, Lid(0x77));
}

TEST_F(InfinibandLink, EthernetFramesAreDropped) {
  pair.connect();
  wire::Frame frame;
  wire::Bth bth;
  bth.opcode = wire::Opcode::RC_RDMA_WRITE_ONLY;
  bth.dest_qp = Qpn(0x22);
  wire::IbAddress address;
  address.source_gid = pair.a.gid.gid;
  address.destination_gid = pair.b.gid.gid;
  address.destination_mac = pair.b.gid.mac;
  wire::IbHeader(address).emit(bth, {}, 0, frame);
  EXPECT_FALSE(pair.b.transport.handle_frame(frame, pair.now));
  EXPECT_EQ(pair.b.transport.counters().rx_packets, 0u);
}

// RoCE -------------------------------------------------------------------------------------------

/// A GID of both versions is in the table twice. Each entry accepts only packets of its own
/// version.
TEST(RoceLink, PacketsOfTheOtherVersionAreNotOurs) {
  for (const auto joined : {Joined::kRoceV1, Joined::kRoceV2}) {
    Pair pair({}, 1, joined);
    pair.adjust = [](QpAttributes& attributes) { attributes.retry_count = 1; };
    pair.connect();
    auto other = pair.b.gid;
    other.roce_v2 = !other.roce_v2;
    pair.b.transport.gids().set(0, other);
    pair.a.post(*pair.qa, write(0, 0x40000, 100));
    pair.drive();
    EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kTransportRetryExceeded));
    EXPECT_EQ(pair.b.transport.counters().rx_packets, 0u);
  }
}

TEST(RoceLink, VersionsOfOneGidStandSideBySide) {
  Pair pair;
  for (auto* end : {&pair.a, &pair.b}) {
    auto v1 = end->gid;
    v1.roce_v2 = false;
    end->transport.gids().set(1, v1);
  }
  pair.adjust = [](QpAttributes& attributes) { attributes.path.src_gid_index = 1; };
  pair.keep_sent = true;
  pair.connect();
  pair.a.post(*pair.qa, write(0, 0x40000, 100));
  pair.drive();
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kSuccess));
  EXPECT_EQ(pair.sent[0].packet.address.encapsulation, wire::Encapsulation::kRoceV1);
}

/// The port has both versions; a connected QP accepts packets of its own address only.
TEST(RoceLink, AConnectionHasOneVersion) {
  Pair pair;
  for (auto* end : {&pair.a, &pair.b}) {
    auto v1 = end->gid;
    v1.roce_v2 = false;
    end->transport.gids().set(1, v1);
  }
  pair.adjust = [](QpAttributes& attributes) {
    attributes.retry_count = 1;
    if (attributes.remote_qpn == Qpn(0x11)) attributes.path.src_gid_index = 1;
  };
  pair.connect();
  pair.a.post(*pair.qa, write(0, 0x40000, 100));
  pair.drive();
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kTransportRetryExceeded));
  EXPECT_EQ(pair.b.transport.counters().dropped_for(Drop::kSource), 2u);
}

/// Without a GID table, a QP with its own address drops packets to other addresses.
TEST(RoceLink, OnlyTheQpsOwnAddressIsOurs) {
  Pair pair;
  pair.b.transport.gids().clear_all();
  pair.adjust = [&](QpAttributes& attributes) {
    attributes.retry_count = 1;
    if (attributes.remote_qpn != Qpn(0x11)) return;
    attributes.path.own_source = pair.b.gid;
    attributes.path.own_source->gid = Gid::from_ipv4(0x0A000003);
  };
  pair.connect();
  pair.a.post(*pair.qa, write(0, 0x40000, 100));
  pair.drive();
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kTransportRetryExceeded));
  EXPECT_EQ(pair.b.transport.counters().rx_packets, 0u);
}

}  // namespace
}  // namespace softhca::rdma::test
