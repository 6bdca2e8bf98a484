// Dynamic connections: an initiator whose requests name their targets, and targets that serve many
// initiators (rdma/README.md, "Dynamic connections").

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rdma/dc_pair.h"

namespace softhca::rdma::test {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Gt;
using ::testing::SizeIs;
using enum WorkStatus;
using wire::Operation;

class Dc : public ::testing::Test, protected DcPair {};

TEST_F(Dc, EveryOperationReachesTheTarget) {
  pair.b.fill(0x100000, 0x10000, 2);
  pair.b.store64(0x200000, 40);
  post_receive(0x300000, 1);
  post_receive(0x310000, 2);
  post_receive(0x320000, 3);
  post(kFirst, send(0, 5000));
  post(kFirst, with_immediate(send(0x100, 10), 0x1234));
  post(kFirst, write(0x200, 0x400000, 3000));
  post(kFirst, with_immediate(write(0x200, 0x410000, 3), 0x5678));
  post(kFirst, read(0x20000, 0x100000, 5000));
  post(kFirst, fetch_add(0x30000, 0x200000, 2));
  post(kFirst, compare_swap(0x30008, 0x200000, 42, 7));
  pair.drive();
  EXPECT_THAT(pair.a.hca.send_statuses(), SizeIs(7));
  EXPECT_THAT(pair.a.hca.send_statuses(), Each(kSuccess));
  ASSERT_THAT(pair.b.hca.receive_statuses(), ElementsAre(kSuccess, kSuccess, kSuccess));
  const auto& receives = pair.b.hca.receives;
  EXPECT_EQ(receives[0].completion.byte_count, 5000u);
  EXPECT_EQ(receives[1].completion.immediate, 0x1234u);
  EXPECT_EQ(receives[2].completion.immediate, 0x5678u);
  EXPECT_EQ(receives[0].qpn, kFirst);
  EXPECT_EQ(std::memcmp(pair.a.at(0), pair.b.at(0x300000), 5000), 0);
  EXPECT_EQ(std::memcmp(pair.a.at(0x200), pair.b.at(0x400000), 3000), 0);
  EXPECT_EQ(std::memcmp(pair.a.at(0x20000), pair.b.at(0x100000), 5000), 0);
  EXPECT_EQ(pair.a.load64(0x30000), 40u);
  EXPECT_EQ(pair.a.load64(0x30008), 42u);
  EXPECT_EQ(pair.b.load64(0x200000), 7u);
  EXPECT_EQ(pair.b.counters.rx_dct_connect, 1u) << "one connection serves all of them";
  EXPECT_THAT(pair.b.hca.events, SizeIs(0));
}

TEST_F(Dc, AnInitiatorLeavesOneTargetForTheNextWhenAllIsAnswered) {
  pair.keep_sent = true;
  post(kFirst, write(0, 0x400000, 3000));
  post(kSecond, write(0x1000, 0x410000, 3000));
  post(kFirst, write(0x2000, 0x420000, 10));
  pair.drive();
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kSuccess, kSuccess, kSuccess));
  EXPECT_EQ(std::memcmp(pair.a.at(0), pair.b.at(0x400000), 3000), 0);
  EXPECT_EQ(std::memcmp(pair.a.at(0x1000), pair.b.at(0x410000), 3000), 0);
  EXPECT_EQ(std::memcmp(pair.a.at(0x2000), pair.b.at(0x420000), 10), 0);
  std::string story;
  for (const auto& [packet, to_b] : pair.sent) {
    const auto operation = packet.info().operation;
    story += !to_b ? 'a' : operation == Operation::kDisconnect ? 'd' : 'w';
    if (to_b) story += packet.bth.dest_qp == kFirst ? '1' : '2';
    story += ' ';
  }
  EXPECT_EQ(story, "w1 w1 w1 a d1 w2 w2 w2 a d2 w1 a ");
  EXPECT_EQ(pair.b.counters.rx_dct_connect, 3u);
  EXPECT_EQ(target(kFirst)->connections(), 1u) << "the second one took the place of the first";
}

TEST_F(Dc, EveryRequestSaysOfWhichConnectionItIsAndNoAnswerDoes) {
  pair.keep_sent = true;
  post(kFirst, write(0, 0x400000, 3000));
  pair.drive();
  const auto idle_at = pair.sent.size();
  post(kFirst, write(0, 0x400000, 600'000));  // more than may be in flight
  pair.drive();
  ASSERT_THAT(pair.sent, SizeIs(Gt(500u)));
  bool may_still_connect = true;
  for (std::size_t i = 0; i != pair.sent.size(); ++i) {
    const auto& [packet, to_b] = pair.sent[i];
    EXPECT_EQ(packet.info().service, wire::Service::DC);
    EXPECT_EQ(packet.info().has(wire::ExtHeader::kDcEth), to_b);
    if (!to_b) continue;
    const auto& eth = packet.ext.dceth;
    EXPECT_EQ(eth.key, kDcKey);
    EXPECT_EQ(eth.source_qp, pair.qa->qpn());
    EXPECT_EQ(eth.first_psn, pair.sent[i < idle_at ? 0 : idle_at].packet.bth.psn);
    EXPECT_EQ(eth.session, pair.sent[0].packet.ext.dceth.session);
    may_still_connect = eth.may_connect;
  }
  EXPECT_TRUE(pair.sent[0].packet.ext.dceth.may_connect);
  EXPECT_TRUE(pair.sent[2].packet.ext.dceth.may_connect);
  EXPECT_TRUE(pair.sent[idle_at].packet.ext.dceth.may_connect) << "it was idle";
  EXPECT_FALSE(may_still_connect) << "it is connected";
}

TEST_F(Dc, AWrongKeyIsDroppedAndReportedToTheTargetsDevice) {
  auto request = to(kFirst, write(0, 0x400000, 10));
  request.dc_key ^= std::uint64_t{1} << 63;
  const auto before = pair.b.load64(0x400000);
  pair.a.post(*pair.qa, request);
  pair.drive();
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kTransportRetryExceeded));
  EXPECT_EQ(pair.qa->state(), QpState::kError);
  EXPECT_EQ(pair.b.load64(0x400000), before);
  EXPECT_EQ(target(kFirst)->connections(), 0u) << "an initiator without the key costs nothing";
  // The request, its retries, and the disconnect of a connection that only the initiator believed
  // in.
  EXPECT_EQ(target(kFirst)->key_violations(), 1u + pair.qa->attributes().retry_count + 1);
  EXPECT_EQ(pair.b.hca.count(QpEvent::kDcKeyViolation), target(kFirst)->key_violations());
}

TEST_F(Dc, AfterAnErrorTheInitiatorConnectsAgain) {
  auto refused = write(0, 0x400000, 10);
  refused.rkey = MKey(0x7700);
  post(kFirst, refused);
  pair.drive();
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kRemoteAccess));
  ASSERT_EQ(pair.qa->state(), QpState::kError);
  ASSERT_TRUE(pair.a.transport.modify(*pair.qa, QpState::kReset, for_a));
  Pair::to_rts(pair.a, *pair.qa, for_a);
  post(kFirst, write(0, 0x400000, 10));
  pair.drive();
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kRemoteAccess, kSuccess));
  EXPECT_EQ(std::memcmp(pair.a.at(0), pair.b.at(0x400000), 10), 0);
}

TEST_F(Dc, RequestsThatRcRefusesAreRefusedOnDc) {
  struct Case {
    SendRequest request;
    WorkStatus status;
  };
  auto unaligned = fetch_add(0x30000, 0x200004, 1);
  for (auto& [request, status] : std::vector<Case>{{unaligned, kRemoteInvalidRequest},
                                                   {send(0, 100), kRemoteInvalidRequest}}) {
    DcPair other;
    other.post_receive(0x300000, 1, 50);  // too short for the SEND
    other.post(kFirst, request);
    other.pair.drive();
    EXPECT_THAT(other.pair.a.hca.send_statuses(), ElementsAre(status));
  }
  DcPair other([](DcTargetAttributes& a) { a.connection.access_flags.remote_write = false; });
  other.post(kFirst, write(0, 0x400000, 10));
  other.pair.drive();
  EXPECT_THAT(other.pair.a.hca.send_statuses(), ElementsAre(kRemoteInvalidRequest));
}

TEST_F(Dc, ATargetWithoutReceivesIsNotReadyUntilThereIsOne) {
  post(kFirst, send(0, 10));
  pair.drive_for(1ms);
  EXPECT_THAT(pair.a.hca.sends, SizeIs(0));
  EXPECT_GT(pair.a.counters.rnr_naks_received, 0u);
  post_receive(0x300000, 1);
  pair.drive();
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kSuccess));
}

TEST_F(Dc, AnInitiatorWithoutItsTargetFailsWhenItsRetriesAreUsedUp) {
  post(Qpn(0x77), write(0, 0x400000, 10));
  pair.drive();
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kTransportRetryExceeded));
  EXPECT_EQ(pair.b.transport.counters().dropped_for(Drop::kNoQp),
            1u + pair.qa->attributes().retry_count + 1);
}

TEST_F(Dc, AnInitiatorTakesNoRequestsAndATargetNoAnswers) {
  pair.keep_sent = true;
  post(kFirst, write(0, 0x400000, 10));
  pair.drive();
  // The initiator receives its own request, and the target receives the answer.
  inject(pair.a, pair.sent[0].packet, pair.qa->qpn());
  inject(pair.b, pair.sent[1].packet, kFirst);
  EXPECT_EQ(pair.a.transport.counters().dropped_for(Drop::kService), 1u);
  EXPECT_EQ(pair.b.transport.counters().dropped_for(Drop::kService), 1u);
}

TEST_F(Dc, ATargetOfAnotherPartitionReceivesNothing) {
  DcPair other([](DcTargetAttributes& a) { a.connection.pkey_index = 1; });
  other.pair.b.transport.set_pkeys(std::array<std::uint16_t, 2>{0xFFFF, 0x8001});
  other.post(kFirst, write(0, 0x400000, 10));
  other.pair.drive();
  EXPECT_THAT(other.pair.a.hca.send_statuses(), ElementsAre(kTransportRetryExceeded));
  EXPECT_GT(other.pair.b.transport.counters().dropped_for(Drop::kPkey), 0u);
}

TEST_F(Dc, LocalRequestsNeedNoTarget) {
  SendRequest nop;
  nop.signaled = true;
  pair.a.post(*pair.qa, nop);
  pair.drive();
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kSuccess));
}

TEST_F(Dc, GoesOnEveryLink) {
  for (const auto joined : kAllJoins) {
    DcPair other({}, {}, 1, joined);
    other.post_receive(0x300000, 1);
    other.post(kFirst, send(0, 3000));
    other.post(kSecond, write(0, 0x400000, 3000));
    other.pair.drive();
    EXPECT_THAT(other.pair.a.hca.send_statuses(), ElementsAre(kSuccess, kSuccess));
  }
}

TEST_F(Dc, MessagesTravelAsTrainsToo) {
  WireOptions options;
  options.trains = true;
  DcPair other({}, options);
  other.post_receive(0x300000, 1, 0x40000);
  other.post(kFirst, send(0, 100'000));
  other.post(kFirst, read(0x80000, 0x300000, 100'000));
  other.pair.drive();
  EXPECT_THAT(other.pair.a.hca.send_statuses(), ElementsAre(kSuccess, kSuccess));
  EXPECT_EQ(std::memcmp(other.pair.a.at(0), other.pair.a.at(0x80000), 100'000), 0);
}

TEST_F(Dc, InspectionShowsTargetsAndConnectedInitiators) {
  post(kFirst, write(0, 0x400000, 10));
  pair.drive();
  const auto text = pair.b.transport.inspect();
  EXPECT_NE(text.find("dc_target 0x31"), std::string::npos) << text;
  EXPECT_NE(text.find("initiator 0x11"), std::string::npos) << text;
}

}  // namespace
}  // namespace softhca::rdma::test
