// The verbs of the QP state table (IBTA 10.3.1, 11.2.4.2), and scheduling.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rdma/pair.h"

namespace softhca::rdma::test {
namespace {

TEST(QpStates, ResetCannotGoToErrorAndAnyRefusalChangesNothing) {
  Pair pair;
  auto attributes = pair.attributes_for(pair.a, pair.b, Qpn(0x22));
  auto& qp = pair.a.create_qp(Qpn(0x11), QpType::kRc, attributes, {});
  EXPECT_EQ(qp.state(), QpState::kReset);
  for (const auto to :
       {QpState::kRtr, QpState::kRts, QpState::kSqDrain, QpState::kSqError, QpState::kError}) {
    const auto modified = pair.a.transport.modify(qp, to, attributes);
    ASSERT_FALSE(modified);
    EXPECT_EQ(modified.error(), Reason::kTransitionForbidden);
    EXPECT_EQ(qp.state(), QpState::kReset);
  }
}

TEST(QpStates, PathMtuMustBeOneOfTheFive) {
  Pair pair;
  auto attributes = pair.attributes_for(pair.a, pair.b, Qpn(0x22));
  auto& qp = pair.a.create_qp(Qpn(0x11), QpType::kRc, attributes, {});
  ASSERT_TRUE(pair.a.transport.modify(qp, QpState::kInit, attributes));
  for (const auto mtu : {0u, 128u, 257u, 1500u, 8192u}) {
    attributes.path_mtu = mtu;
    const auto modified = pair.a.transport.modify(qp, QpState::kRtr, attributes);
    ASSERT_FALSE(modified);
    EXPECT_EQ(modified.error(), Reason::kPathMtu);
    EXPECT_EQ(qp.state(), QpState::kInit);
  }
}

TEST(QpStates, SequenceNumbersAreTakenOnTheWayUpOnly) {
  Pair pair;
  pair.connect();
  EXPECT_EQ(pair.qa->next_receive_psn(), 0x100u);
  EXPECT_EQ(pair.qa->next_send_psn(), 0xFFFFF0u);
  EXPECT_EQ(pair.qa->last_acked_psn(), 0xFFFFEFu);
  auto attributes = pair.qa->attributes();
  attributes.rq_psn = attributes.sq_psn = 7;
  attributes.path_mtu = 256;
  ASSERT_TRUE(pair.a.transport.modify(*pair.qa, QpState::kRts, attributes));
  EXPECT_EQ(pair.qa->next_receive_psn(), 0x100u);
  EXPECT_EQ(pair.qa->next_send_psn(), 0xFFFFF0u);
  EXPECT_EQ(pair.qa->attributes().path_mtu, 1024u);
}

// IBTA 11.2.4.2 Table 91: the connection keeps its path, its MTU and the responder's resources.
TEST(QpStates, ARunningQpKeepsWhatItsTransitionDoesNotName) {
  Pair pair;
  pair.connect();
  auto attributes = pair.qa->attributes();
  attributes.remote_qpn = Qpn(0x99);
  attributes.path.dst_gid = Gid::from_ipv4(1);
  attributes.retry_count = 1;
  attributes.max_rd_atomic = 1;
  attributes.max_dest_rd_atomic = 1;
  attributes.pkey_index = 1;
  attributes.access_flags.remote_write = false;
  attributes.min_rnr_timer = 3;
  ASSERT_TRUE(pair.a.transport.modify(*pair.qa, QpState::kRts, attributes));
  const auto& now = pair.qa->attributes();
  EXPECT_EQ(now.remote_qpn, Qpn(0x22));
  EXPECT_EQ(now.path.dst_gid, pair.b.gid.gid);
  EXPECT_EQ(now.retry_count, 7u);
  EXPECT_EQ(now.max_rd_atomic, 4u);
  EXPECT_EQ(now.max_dest_rd_atomic, 4u);
  EXPECT_EQ(now.pkey_index, 0);
  EXPECT_FALSE(now.access_flags.remote_write);
  EXPECT_EQ(now.min_rnr_timer, 3u);
}

TEST(QpStates, OptionalAttributesAreTakenOnlyIfTheyAreGiven) {
  Pair pair;
  pair.connect();
  auto attributes = pair.qa->attributes();
  attributes.access_flags.remote_write = false;
  attributes.min_rnr_timer = 3;
  ASSERT_TRUE(pair.a.transport.modify(*pair.qa, QpState::kRts, attributes,
                                      {spec::infiniband::QpAttribute::kMinRnrTimer}));
  EXPECT_TRUE(pair.qa->attributes().access_flags.remote_write);
  EXPECT_EQ(pair.qa->attributes().min_rnr_timer, 3u);
}

// A drained QP may get a deeper responder. It still answers earlier duplicates.
TEST(QpStates, ADrainedResponderTakesMoreReadsAndKeepsItsAtomicResults) {
  Pair pair;
  pair.adjust = [](QpAttributes& a) { a.max_rd_atomic = a.max_dest_rd_atomic = 2; };
  pair.connect();
  for (unsigned i = 0; i < 3; ++i) pair.a.post(*pair.qa, fetch_add(8 * i, 0x100, 1));
  pair.drive();
  auto attributes = pair.qb->attributes();
  attributes.max_dest_rd_atomic = 16;
  ASSERT_TRUE(pair.b.transport.modify(*pair.qb, QpState::kSqDrain, attributes));
  EXPECT_EQ(pair.qb->attributes().max_dest_rd_atomic, 2u) << "RTS to SQD takes nothing";
  ASSERT_TRUE(pair.b.transport.modify(*pair.qb, QpState::kSqDrain, attributes));
  EXPECT_EQ(pair.qb->attributes().max_dest_rd_atomic, 16u);
  attributes = pair.qa->attributes();
  attributes.max_rd_atomic = 16;
  Pair::change_drained(pair.a, *pair.qa, attributes);
  // Each answer is lost once, so all sixteen requests are sent twice.
  unsigned lost = 0;
  pair.script = [&](const wire::IbPacket& packet, bool) {
    return !packet.info().request && lost++ < 16 ? Fate::kLose : Fate::kDeliver;
  };
  for (unsigned i = 0; i < 16; ++i) pair.a.post(*pair.qa, fetch_add(0x200 + 8 * i, 0x100, 1));
  pair.drive();
  EXPECT_EQ(pair.b.load64(0x100), 19u);
  for (unsigned i = 0; i < 16; ++i) EXPECT_EQ(pair.a.load64(0x200 + 8 * i), 3 + i);
  EXPECT_EQ(pair.qa->state(), QpState::kRts);
}

// IBTA 10.3.1.6: a request that is "not begun" is not processed, even if it is malformed.
TEST(QpStates, InSqdARequestThatWasNotBegunIsNotLookedAt) {
  for (const bool malformed : {true, false}) {
    Pair pair;
    pair.connect();
    auto inline_read = read(0, 0, 8);
    inline_read.inline_data.assign(std::as_bytes(std::span("12345678")));
    ASSERT_TRUE(pair.a.transport.modify(*pair.qa, QpState::kSqDrain, {}));
    pair.a.hca.malformed_send = malformed;
    pair.a.post(*pair.qa, malformed ? write(0, 0, 8) : inline_read);
    pair.drive();
    EXPECT_EQ(pair.qa->state(), QpState::kSqDrain);
    EXPECT_TRUE(pair.qa->drained());
    EXPECT_EQ(pair.a.hca.count(QpEvent::kSqDrained), 1u);
    EXPECT_TRUE(pair.a.hca.sends.empty());
    ASSERT_TRUE(pair.a.transport.modify(*pair.qa, QpState::kRts, {}, {}));
    pair.drive();
    EXPECT_EQ(pair.a.hca.send_statuses(), std::vector{WorkStatus::kLocalQpOperation});
    EXPECT_EQ(pair.qa->state(), QpState::kError);
  }
}

// One request is fetched ahead of its turn. It waits in SQD as well.
TEST(QpStates, InSqdARequestThatWasFetchedAndNotBegunWaits) {
  Pair pair;
  pair.connect();
  auto inline_read = read(0, 0, 8);
  inline_read.inline_data.assign(std::as_bytes(std::span("12345678")));
  pair.a.post(*pair.qa, write(0, 0, 8));
  pair.a.post(*pair.qa, inline_read);
  pair.a.run(pair.now);
  ASSERT_EQ(pair.a.waiting, 1u);
  ASSERT_TRUE(pair.a.transport.modify(*pair.qa, QpState::kSqDrain, {}));
  pair.drive();
  EXPECT_EQ(pair.qa->state(), QpState::kSqDrain);
  EXPECT_TRUE(pair.qa->drained());
  EXPECT_EQ(pair.a.hca.send_statuses(), std::vector{WorkStatus::kSuccess});
  ASSERT_TRUE(pair.a.transport.modify(*pair.qa, QpState::kRts, {}, {}));
  pair.drive();
  EXPECT_EQ(pair.a.hca.send_statuses(),
            (std::vector{WorkStatus::kSuccess, WorkStatus::kLocalQpOperation}));
}

// The attributes that count are those of the request's turn, after SQD.
TEST(QpStates, RequestsPostedInSqdUseTheAttributesOfTheirTurn) {
  Pair pair;
  pair.adjust = [](QpAttributes& a) { a.max_rd_atomic = 0; };
  pair.connect();
  ASSERT_TRUE(pair.a.transport.modify(*pair.qa, QpState::kSqDrain, pair.qa->attributes()));
  pair.a.hca.send_memory_gone = true;
  pair.a.post(*pair.qa, read(0, 0, 8));
  pair.drive();
  EXPECT_EQ(pair.qa->state(), QpState::kSqDrain) << "the send queue is not read";
  EXPECT_EQ(pair.qa->next_send_psn(), 0xFFFFF0u);
  pair.a.hca.send_memory_gone = false;
  auto attributes = pair.qa->attributes();
  attributes.max_rd_atomic = 1;
  ASSERT_TRUE(pair.a.transport.modify(*pair.qa, QpState::kSqDrain, attributes));
  pair.drive();
  ASSERT_TRUE(pair.a.transport.modify(*pair.qa, QpState::kRts, attributes));
  pair.drive();
  EXPECT_EQ(pair.a.hca.send_statuses(), std::vector{WorkStatus::kSuccess});
}

// IBTA 11.6.3.1.
TEST(QpStates, CommunicationIsEstablishedOnConnectionsOnly) {
  for (const auto type : {QpType::kRc, QpType::kUc, QpType::kUd}) {
    Pair pair;
    pair.connect(type);
    const auto attributes = pair.attributes_for(pair.b, pair.a, Qpn(0x11));
    for (const auto state : {QpState::kReset, QpState::kInit, QpState::kRtr}) {
      ASSERT_TRUE(pair.b.transport.modify(*pair.qb, state, attributes));
    }
    pair.b.post_receive(*pair.qb, {End::sge(0, 1024)});
    auto request = datagram_to(pair.b, 0, 100);
    pair.a.post(*pair.qa, request);
    pair.drive();
    EXPECT_EQ(pair.b.hca.receives.size(), 1u);
    EXPECT_EQ(pair.b.hca.count(QpEvent::kCommunicationEstablished), type == QpType::kUd ? 0u : 1u);
  }
}

TEST(QpStates, DoorbellInResetHasNoEffect) {
  Pair pair;
  auto& qp = pair.a.create_qp(Qpn(0x11), QpType::kRc, {}, {});
  pair.a.post(qp, write(0, 0, 8));
  pair.drive();
  EXPECT_TRUE(pair.a.hca.sends.empty());
  EXPECT_EQ(pair.a.hca.sends_posted[Qpn(0x11)].size(), 1u);
}

TEST(QpStates, ReceivesPostedInInitAreUsedAfterRtr) {
  Pair pair;
  pair.connect();
  ASSERT_TRUE(pair.b.transport.modify(*pair.qb, QpState::kReset, {}));
  const auto attributes = pair.attributes_for(pair.b, pair.a, Qpn(0x11));
  ASSERT_TRUE(pair.b.transport.modify(*pair.qb, QpState::kInit, attributes));
  pair.b.post_receive(*pair.qb, {End::sge(0, 100)}, 4);
  ASSERT_TRUE(pair.b.transport.modify(*pair.qb, QpState::kRtr, attributes));
  pair.a.post(*pair.qa, send(0, 100));
  pair.drive();
  EXPECT_EQ(pair.b.hca.receives.at(0).completion.cookie, 4u);
}

TEST(QpStates, EveryCounterHasANameAUnitAndAMeaning) {
  for (const auto& info : qp_counter_table()) {
    EXPECT_FALSE(info.name.empty());
    EXPECT_FALSE(info.unit.empty());
    EXPECT_FALSE(info.meaning.empty());
  }
}

TEST(Scheduling, QpsTakeTurnsWithinABudget) {
  Pair pair;
  std::vector<QueuePair*> qps;
  for (unsigned i = 0; i < 4; ++i) {
    const auto attributes = pair.attributes_for(pair.a, pair.b, Qpn(0x200 + i));
    qps.push_back(&pair.a.create_qp(Qpn(0x100 + i), QpType::kRc, attributes, {}));
    Pair::to_rts(pair.a, *qps.back(), attributes);
    pair.a.post(*qps.back(), write(0, 0, 400 * 1024));
  }
  std::map<std::uint32_t, unsigned> sent;
  pair.script = [&](const wire::IbPacket& packet, bool) {
    ++sent[packet.bth.dest_qp.value()];
    return Fate::kLose;
  };
  EXPECT_EQ(pair.a.run(pair.now, 8 * Engine::kQuantum), pair.now) << "there is more to send";
  pair.carry();
  ASSERT_EQ(sent.size(), 4u);
  for (const auto& [qpn, packets] : sent) EXPECT_EQ(packets, 2 * Engine::kQuantum);
}

TEST(Scheduling, IdleTransportAsksForNoCall) {
  Pair pair;
  pair.connect();
  pair.a.post(*pair.qa, write(0, 0, 8));
  pair.drive();
  EXPECT_EQ(pair.a.run(pair.now), util::kNever);
}

TEST(Scheduling, TimersExpireWithinTheBudgetOfARun) {
  Pair pair;
  pair.qp_options.counters = &pair.a.counters;
  for (unsigned i = 0; i < 1000; ++i) {
    const auto attributes = pair.attributes_for(pair.a, pair.b, Qpn(0x900));
    auto& qp = pair.a.create_qp(Qpn(0x100 + i), QpType::kRc, attributes, pair.qp_options);
    Pair::to_rts(pair.a, qp, attributes);
    pair.a.post(qp, write(0, 0, 8));
  }
  while (pair.a.run(pair.now) == pair.now) pair.carry();
  EXPECT_EQ(pair.a.counters.local_ack_timeout_err, 0u);
  pair.now += 1s;
  unsigned runs = 0;
  for (std::uint64_t before = 0; pair.a.counters.local_ack_timeout_err != 1000; ++runs) {
    EXPECT_EQ(pair.a.run(pair.now, 100), pair.now);
    EXPECT_LE(pair.a.counters.local_ack_timeout_err - before, 110u);
    before = pair.a.counters.local_ack_timeout_err;
  }
  EXPECT_LE(runs, 12u);
}

/// Every answer postpones a timer. Its place in the queue moves only when the old time comes.
TEST(Scheduling, TimersThatHaveMovedTakeNoMoreThanIsAllowed) {
  Pair pair;
  TimerQueue queue;
  std::vector<QueuePair*> qps;
  const auto at = pair.now + 1s;
  for (unsigned i = 0; i < 100; ++i) {
    qps.push_back(&pair.a.create_qp(Qpn(0x100 + i), QpType::kRc, {}, {}));
    queue.arm(*qps.back(), Timer::kAck, at);
    queue.arm(*qps.back(), Timer::kAck, at + 1s);
  }
  auto work = 10 * TimerQueue::kSettleWork;
  EXPECT_EQ(queue.expired(at, work), nullptr);
  EXPECT_EQ(work, 0);
  EXPECT_LE(queue.next(), at) << "there are more";
  work = 1000 * TimerQueue::kSettleWork;
  EXPECT_EQ(queue.expired(at, work), nullptr);
  EXPECT_EQ(work, 910 * TimerQueue::kSettleWork);
  EXPECT_EQ(queue.next(), at + 1s);
  EXPECT_NE(queue.expired(at + 1s, work), nullptr);
  for (auto* qp : qps) queue.remove(*qp);
}

TEST(Scheduling, ManyTimersExpireInOrder) {
  Pair pair;
  std::vector<QueuePair*> qps;
  for (unsigned i = 0; i < 100; ++i) {
    auto attributes = pair.attributes_for(pair.a, pair.b, Qpn(0x900));
    attributes.ack_timeout = static_cast<std::uint8_t>(1 + i * 7 % 13);
    attributes.retry_count = 0;
    qps.push_back(&pair.a.create_qp(Qpn(0x100 + i), QpType::kRc, attributes, {}));
    Pair::to_rts(pair.a, *qps.back(), attributes);
    pair.a.post(*qps.back(), write(0, 0, 8));
    if (i % 5 == 0) pair.a.run(pair.now);
  }
  // Some QPs are destroyed while their timers run.
  pair.a.run(pair.now);
  for (unsigned i = 0; i < 100; i += 9) pair.a.transport.destroy_qp(*qps[i]);
  pair.drive();
  ASSERT_EQ(pair.a.hca.sends.size(), 88u);
  std::uint8_t last = 0;
  for (const auto& done : pair.a.hca.sends) {
    EXPECT_EQ(done.status, WorkStatus::kTransportRetryExceeded);
    const auto timeout = pair.a.transport.find(done.qpn)->attributes().ack_timeout;
    EXPECT_GE(timeout, last);
    last = timeout;
  }
}

}  // namespace
}  // namespace softhca::rdma::test
