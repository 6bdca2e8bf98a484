// A DC target's connections: how they begin and end, on a wire that loses and reorders, with many
// initiators, and while the target is drained.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rdma/dc_pair.h"

namespace softhca::rdma::test {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::SizeIs;
using enum WorkStatus;
using wire::Operation;

class DcConnections : public ::testing::Test, protected DcPair {
 protected:
  /// A request packet as the initiator sends it, with another session.
  wire::IbPacket packet_of(std::uint32_t session, bool may_connect, Qpn source) {
    wire::IbPacket packet;
    packet.bth.opcode = wire::Opcode::DC_RDMA_WRITE_ONLY;
    packet.bth.psn = wire::Psn(5);
    packet.bth.ack_req = true;
    packet.ext.dceth = {.key = kDcKey,
                        .may_connect = may_connect,
                        .source_qp = source,
                        .session = session,
                        .first_psn = wire::Psn(5)};
    return packet;
  }
  std::uint64_t dropped(Drop drop) { return pair.b.transport.counters().dropped_for(drop); }
};

TEST_F(DcConnections, ALostFirstPacketIsSentAgainAndConnects) {
  unsigned requests = 0;
  pair.script = [&](const wire::IbPacket&, bool to_b) {
    return to_b && requests++ == 0 ? Fate::kLose : Fate::kDeliver;
  };
  post(kFirst, write(0, 0x400000, 20000));
  pair.drive();
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kSuccess));
  EXPECT_EQ(std::memcmp(pair.a.at(0), pair.b.at(0x400000), 20000), 0);
  EXPECT_EQ(pair.a.counters.packet_seq_err, 1u) << "the second packet opened the connection";
}

TEST_F(DcConnections, ALostAcknowledgementIsRepeatedAndNothingIsDoneTwice) {
  unsigned answers = 0;
  pair.script = [&](const wire::IbPacket&, bool to_b) {
    return !to_b && answers++ == 0 ? Fate::kLose : Fate::kDeliver;
  };
  pair.b.store64(0x200000, 40);
  post(kFirst, fetch_add(0x30000, 0x200000, 2));
  pair.drive();
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kSuccess));
  EXPECT_EQ(pair.b.load64(0x200000), 42u);
  EXPECT_EQ(pair.b.counters.rx_dct_connect, 1u);
}

TEST_F(DcConnections, ALostEndOfAConnectionIsReplacedByTheNext) {
  pair.script = [&](const wire::IbPacket& packet, bool) {
    return packet.info().operation == Operation::kDisconnect ? Fate::kLose : Fate::kDeliver;
  };
  for (int i = 0; i < 3; ++i) {
    post(kFirst, write(0, 0x400000, 10));
    post(kSecond, write(0, 0x410000, 10));
  }
  pair.drive();
  EXPECT_THAT(pair.a.hca.send_statuses(), SizeIs(6));
  EXPECT_THAT(pair.a.hca.send_statuses(), Each(kSuccess));
  EXPECT_EQ(target(kFirst)->connections(), 1u);
}

TEST_F(DcConnections, PacketsOfAnEarlierConnectionAreDropped) {
  inject(pair.b, packet_of(100, true, Qpn(0x50)), kFirst);
  EXPECT_EQ(pair.b.counters.rx_write_requests, 1u);
  inject(pair.b, packet_of(99, true, Qpn(0x50)), kFirst);
  EXPECT_EQ(pair.b.counters.rx_write_requests, 1u);
  EXPECT_EQ(dropped(Drop::kDcConnection), 1u);
  inject(pair.b, packet_of(101, true, Qpn(0x50)), kFirst);
  EXPECT_EQ(pair.b.counters.rx_write_requests, 2u) << "a later one takes its place";
  EXPECT_EQ(target(kFirst)->connections(), 1u);
}

TEST_F(DcConnections, OnlyWhatWasNeverAnsweredOpensOne) {
  inject(pair.b, packet_of(100, false, Qpn(0x50)), kFirst);
  EXPECT_EQ(pair.b.counters.rx_write_requests, 0u);
  EXPECT_EQ(dropped(Drop::kDcConnection), 1u);
}

TEST_F(DcConnections, AnEndedOneDoesNotComeBack) {
  auto packet = packet_of(100, true, Qpn(0x50));
  inject(pair.b, packet, kFirst);
  auto end = packet;
  end.bth.opcode = wire::Opcode::DC_DISCONNECT;
  inject(pair.b, end, kFirst);
  inject(pair.b, packet, kFirst);
  EXPECT_EQ(pair.b.counters.rx_write_requests, 1u) << "a late copy is not executed again";
  EXPECT_EQ(dropped(Drop::kDcConnection), 1u);
}

TEST_F(DcConnections, AnInitiatorThatIsDestroyedSaysNothing) {
  post(kFirst, write(0, 0x400000, 10));
  pair.drive();
  const auto sent = pair.a.transmitted;
  pair.a.transport.destroy_qp(*pair.qa);
  EXPECT_EQ(pair.a.transmitted, sent);
}

TEST_F(DcConnections, TheReceiveOfAMessageThatIsGivenUpIsFlushed) {
  post_receive(0x300000, 9);
  pair.script = [&](const wire::IbPacket& packet, bool to_b) {
    const bool end = packet.info().operation == Operation::kSend && packet.info().last;
    return to_b && end ? Fate::kLose : Fate::kDeliver;
  };
  post(kFirst, send(0, 3000));
  pair.drive();
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kTransportRetryExceeded));
  ASSERT_THAT(pair.b.hca.receive_statuses(), ElementsAre(kFlushed));
  EXPECT_EQ(pair.b.hca.receives[0].completion.cookie, 9u);
}

TEST_F(DcConnections, ManyInitiatorsShareATarget) {
  std::vector<QueuePair*> initiators;
  for (unsigned i = 0; i < 50; ++i) initiators.push_back(&make_initiator(Qpn(0x100 + i)));
  for (unsigned round = 0; round < 3; ++round) {
    for (unsigned i = 0; i < 50; ++i) {
      pair.a.post(*initiators[i], to(kFirst, write(i * 16, 0x400000 + i * 16, 16)));
    }
    pair.drive();
  }
  EXPECT_THAT(pair.a.hca.send_statuses(), SizeIs(150));
  EXPECT_THAT(pair.a.hca.send_statuses(), Each(kSuccess));
  EXPECT_EQ(std::memcmp(pair.a.at(0), pair.b.at(0x400000), 50 * 16), 0);
  EXPECT_EQ(target(kFirst)->connections(), 50u);
}

TEST_F(DcConnections, AHostilePeerCannotMakeMoreThanThePortHasRoomFor) {
  const auto max = PortOptions{}.dc_connections;
  for (unsigned i = 0; i < max + 10; ++i) {
    inject(pair.b, packet_of(1, true, Qpn(0x1000 + i)), i % 2 == 0 ? kFirst : kSecond);
  }
  EXPECT_EQ(target(kFirst)->connections() + target(kSecond)->connections(), max);
  EXPECT_EQ(dropped(Drop::kResources), 10u);
  EXPECT_EQ(pair.b.counters.rx_write_requests, max);
  // A disconnect frees its place immediately, a silent peer's place is freed after a timeout.
  auto end = packet_of(1, true, Qpn(0x1000));
  end.bth.opcode = wire::Opcode::DC_DISCONNECT;
  inject(pair.b, end, kFirst);
  inject(pair.b, packet_of(1, true, Qpn(0x500000)), kSecond);
  EXPECT_EQ(pair.b.counters.rx_write_requests, max + 1);
  pair.now += 11s;
  inject(pair.b, packet_of(1, true, Qpn(0x500001)), kSecond);
  EXPECT_EQ(pair.b.counters.rx_write_requests, max + 2);
  EXPECT_EQ(target(kFirst)->connections() + target(kSecond)->connections(), max);
}

TEST_F(DcConnections, OldOnesAreForgottenAsNewOnesCome) {
  for (unsigned i = 0; i < 100; ++i) {
    inject(pair.b, packet_of(1, true, Qpn(0x1000 + i)), kFirst);
    auto end = packet_of(1, true, Qpn(0x1000 + i));
    end.bth.opcode = wire::Opcode::DC_DISCONNECT;
    if (i % 2 == 0) inject(pair.b, end, kFirst);
  }
  (void)pair.b.run(pair.now);
  const auto after = [&](util::Duration time, unsigned first) {
    pair.now += time;
    for (unsigned i = 0; i < 25; ++i) inject(pair.b, packet_of(1, true, Qpn(first + i)), kSecond);
    (void)pair.b.run(pair.now);
    return target(kFirst)->connections();
  };
  EXPECT_EQ(after(9s, 0x2000), 100u);
  EXPECT_EQ(after(2s, 0x3000), 50u) << "those that ended";
  EXPECT_EQ(after(50s, 0x4000), 0u) << "those of which nothing came";
  EXPECT_EQ(target(kSecond)->connections(), 75u);
}

TEST_F(DcConnections, OneWithSomethingToAnswerIsNotForgotten) {
  inject(pair.b, packet_of(1, true, Qpn(0x11)), kFirst);  // not yet answered: run() was not called
  pair.now += 61s;
  for (unsigned i = 0; i < 10; ++i) inject(pair.b, packet_of(1, true, Qpn(0x1000 + i)), kSecond);
  EXPECT_EQ(target(kFirst)->connections(), 1u);
}

TEST_F(DcConnections, ATargetThatDrainsTakesNothingMoreAndAnswersWhatItHas) {
  // Executed, not yet answered: run() has not been called.
  inject(pair.b, packet_of(1, true, Qpn(0x11)), kFirst);
  EXPECT_FALSE(drain(kFirst));
  EXPECT_TRUE(target(kFirst)->draining());
  const auto sent = pair.b.transmitted;
  (void)pair.b.run(pair.now);
  EXPECT_EQ(pair.b.transmitted, sent + 1);
  EXPECT_TRUE(drain(kFirst));
  inject(pair.b, packet_of(2, true, Qpn(0x11)), kFirst);
  EXPECT_EQ(dropped(Drop::kQpState), 1u);
  EXPECT_EQ(target(kFirst)->connections(), 0u);
  pair.b.transport.dc_targets().remove(kFirst);
  EXPECT_EQ(target(kFirst), nullptr);
}

// A peer may have asked for more than it will ever take.
TEST_F(DcConnections, ATargetThatDrainsDropsLateAnswers) {
  inject(pair.b, packet_of(1, true, Qpn(0x11)), kFirst);
  const auto drain_after = [&](util::Duration time) {
    pair.b.transport.note_time(pair.now += time);
    return drain(kFirst);
  };
  EXPECT_FALSE(drain_after(0ms));
  EXPECT_FALSE(drain_after(249ms));
  EXPECT_TRUE(drain_after(1ms));
  const auto sent = pair.b.transmitted;
  (void)pair.b.run(pair.now);
  EXPECT_EQ(pair.b.transmitted, sent);
}

TEST_F(DcConnections, DrainingIsCutIntoPieces) {
  for (unsigned i = 0; i < 100; ++i) inject(pair.b, packet_of(1, true, Qpn(0x1000 + i)), kFirst);
  (void)pair.b.run(pair.now);
  unsigned pieces = 1;
  for (;; ++pieces) {
    util::WorkBudget work(6000);
    if (pair.b.transport.dc_targets().drain(kFirst, work)) break;
    ASSERT_LT(pieces, 100u);
  }
  EXPECT_GT(pieces, 5u);
}

TEST_F(DcConnections, TargetsGoWithTheDeviceInPieces) {
  for (unsigned i = 0; i < 100; ++i) inject(pair.b, packet_of(1, true, Qpn(0x1000 + i)), kFirst);
  util::WorkBudget little(6000);
  EXPECT_FALSE(pair.b.transport.dismantle_tables(little));
  util::WorkBudget enough(1'000'000);
  EXPECT_TRUE(pair.b.transport.dismantle_tables(enough));
  EXPECT_EQ(target(kFirst), nullptr);
}

TEST_F(DcConnections, AnIdleInitiatorReachesATargetThatWasMadeAgainUnderItsNumber) {
  for (unsigned i = 0; i < 3; ++i) {
    post(kFirst, write(0, 0x400000, 5000));
    post(kFirst, write(0, 0x400000, 10));
    pair.drive();
    EXPECT_THAT(pair.a.hca.send_statuses(), SizeIs(2 * i + 2));
    EXPECT_THAT(pair.a.hca.send_statuses(), Each(kSuccess));
    ASSERT_TRUE(drain(kFirst));
    pair.b.transport.dc_targets().remove(kFirst);
    make_target(kFirst);
  }
}

TEST_F(DcConnections, AnIdleInitiatorReachesATargetThatHasForgottenIt) {
  post(kFirst, write(0, 0x400000, 10));
  pair.drive();
  pair.now += 11s;
  // Other initiators occupy all connections.
  for (unsigned i = 0; i < PortOptions{}.dc_connections; ++i) {
    inject(pair.b, packet_of(1, true, Qpn(0x1000 + i)), kSecond);
  }
  ASSERT_EQ(target(kFirst)->connections(), 0u);
  pair.now += 11s;
  post(kFirst, write(0, 0x400000, 10));
  pair.drive();
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kSuccess, kSuccess));
}

TEST_F(DcConnections, SessionsOfAProcessThatIsGoneAreEarlierOnes) {
  pair.keep_sent = true;
  post(kFirst, write(0, 0x400000, 10));
  pair.drive();
  DcPair later;
  later.pair.now = pair.now + 1ms;
  later.pair.keep_sent = true;
  later.post(kFirst, write(0, 0x400000, 10));
  later.pair.drive();
  EXPECT_GT(later.pair.sent[0].packet.ext.dceth.session, pair.sent[0].packet.ext.dceth.session);
}

/// Every message arrives once and in order on any wire.
TEST(DcSoak, MessagesToTwoTargetsSurviveABadWire) {
  for (unsigned seed = 1; seed <= 8; ++seed) {
    WireOptions options;
    options.loss = 0.03;
    options.duplicate = 0.03;
    options.late = 0.03;
    DcPair world({}, options, seed);
    auto& pair = world.pair;
    pair.b.store64(0x200000, 0);
    for (unsigned i = 0; i < 60; ++i) {
      const auto target = i / 3 % 2 == 0 ? kFirst : kSecond;
      world.post_receive(0x300000 + i * 0x2000, i);
      world.post(target, send(i * 0x400, 100 + i * 90));
      world.post(target, fetch_add(0x30000, 0x200000, 1));
    }
    pair.drive();
    EXPECT_THAT(pair.a.hca.send_statuses(), SizeIs(120)) << "seed " << seed;
    EXPECT_THAT(pair.a.hca.send_statuses(), Each(kSuccess)) << "seed " << seed;
    EXPECT_EQ(pair.b.load64(0x200000), 60u) << "seed " << seed;
    ASSERT_THAT(pair.b.hca.receives, SizeIs(60)) << "seed " << seed;
    for (unsigned i = 0; i < 60; ++i) {
      EXPECT_EQ(pair.b.hca.receives[i].completion.cookie, i);
      EXPECT_EQ(std::memcmp(pair.a.at(i * 0x400), pair.b.at(0x300000 + i * 0x2000), 100 + i * 90),
                0);
    }
  }
}

}  // namespace
}  // namespace softhca::rdma::test
