// RC: what becomes of posted requests in ERR and RESET.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rdma/rc_errors.h"

namespace softhca::rdma::test {
namespace {

using ::testing::ElementsAre;
using enum WorkStatus;

TEST_F(RcErrors, ModifyToErrorFlushesBothQueuesInOrderAndLaterPostsToo) {
  for (std::uint32_t i = 0; i < 100; ++i) pair.a.post_receive(*pair.qa, {}, i);
  auto unsignaled = write(0, 0, 8);
  unsignaled.signaled = false;
  pair.a.hca.sends_posted[pair.qa->qpn()].assign(50, unsignaled);
  ASSERT_TRUE(pair.a.transport.modify(*pair.qa, QpState::kError, {}));
  pair.drive();
  EXPECT_EQ(pair.a.hca.sends.size(), 50u);
  EXPECT_THAT(pair.a.hca.send_statuses(), ::testing::Each(kFlushed));
  ASSERT_EQ(pair.a.hca.receives.size(), 100u);
  for (std::uint32_t i = 0; i < 100; ++i) {
    EXPECT_EQ(pair.a.hca.receives[i].completion.cookie, i);
    EXPECT_EQ(pair.a.hca.receives[i].completion.status, kFlushed);
  }
  EXPECT_TRUE(pair.qa->flushes_receives());
  pair.a.post(*pair.qa, write(0, 0, 8));
  pair.a.post_receive(*pair.qa, {}, 1000);
  pair.drive();
  EXPECT_EQ(pair.a.hca.sends.size(), 51u);
  EXPECT_EQ(pair.a.hca.receives.at(100).completion.cookie, 1000u);
}

TEST_F(RcErrors, FlushingIsWorkWithinTheBudgetOfARun) {
  pair.a.hca.endless_sends = true;
  ASSERT_TRUE(pair.a.transport.modify(*pair.qa, QpState::kError, {}));
  EXPECT_EQ(pair.a.hca.fetched, 0u);
  for (std::uint32_t i = 1; i <= 5; ++i) {
    EXPECT_EQ(pair.a.run(pair.now, 64), pair.now);
    EXPECT_EQ(pair.a.hca.fetched, 64 * i);
  }
}

TEST_F(RcErrors, RequestsInFlightAreFlushedAndTheirAnswersIgnored) {
  for (int i = 0; i < 5; ++i) pair.a.post(*pair.qa, write(0, 0, 3000));
  pair.a.run(pair.now);
  ASSERT_TRUE(pair.a.transport.modify(*pair.qa, QpState::kError, {}));
  pair.drive();
  EXPECT_EQ(pair.a.hca.send_statuses(), std::vector(5, kFlushed));
  EXPECT_GT(pair.a.transport.counters().dropped_for(Drop::kQpState), 0u);
}

TEST_F(RcErrors, ReceiveInUseIsFlushedToo) {
  pair.b.post_receive(*pair.qb, {End::sge(0, 9000)}, 3);
  pair.script = [](const wire::IbPacket& packet, bool) {
    return packet.info().last ? Fate::kLose : Fate::kDeliver;
  };
  pair.a.post(*pair.qa, send(0, 9000));
  pair.drive_for(10us);
  ASSERT_TRUE(pair.b.transport.modify(*pair.qb, QpState::kError, {}));
  pair.drive_for(10us);
  EXPECT_THAT(pair.b.hca.receive_statuses(), ElementsAre(kFlushed));
  EXPECT_EQ(pair.b.hca.receives.at(0).completion.cookie, 3u);
}

TEST_F(RcErrors, ResetDropsEverythingWithoutACompletion) {
  for (int i = 0; i < 5; ++i) pair.a.post(*pair.qa, write(0, 0, 3000));
  pair.a.run(pair.now);
  ASSERT_TRUE(pair.a.transport.modify(*pair.qa, QpState::kReset, {}));
  pair.a.hca.sends_posted.clear();
  pair.drive();
  EXPECT_TRUE(pair.a.hca.sends.empty());
  EXPECT_EQ(pair.qa->next_send_psn(), 0u);
  EXPECT_EQ(pair.qa->send_sequence(), 0u);
}

TEST_F(RcErrors, QpWorksAgainAfterErrorAndReset) {
  run([] {
    auto bad = write(0, 0, 100);
    bad.rkey = MKey(0x999900);
    return bad;
  }());
  for (auto* end : {&pair.a, &pair.b}) {
    auto& qp = end == &pair.a ? *pair.qa : *pair.qb;
    auto attributes = qp.attributes();
    std::swap(attributes.sq_psn, attributes.rq_psn);
    ASSERT_TRUE(end->transport.modify(qp, QpState::kReset, {}));
    Pair::to_rts(*end, qp, attributes);
  }
  pair.a.hca.sends.clear();
  pair.a.post(*pair.qa, write(0, 0x1000, 10000));
  pair.a.post(*pair.qa, read(0x8000, 0x1000, 10000));
  pair.drive();
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kSuccess, kSuccess));
  EXPECT_EQ(std::memcmp(pair.a.at(0), pair.a.at(0x8000), 10000), 0);
}

TEST_F(RcErrors, DestroyedQpLeavesNothingBehind) {
  for (int i = 0; i < 5; ++i) pair.a.post(*pair.qa, read(0, 0, 300000));
  pair.drive_for(1500ns);
  pair.a.transport.destroy_qp(*pair.qa);
  pair.b.transport.destroy_qp(*pair.qb);
  pair.drive();
  EXPECT_TRUE(pair.a.hca.sends.empty());
  EXPECT_EQ(pair.a.transport.find(Qpn(0x11)), nullptr);
  EXPECT_TRUE(pair.a.transport.queue_pairs().empty());
}

TEST(RcSrq, ErrorLeavesTheSharedQueueAloneAndRaisesLastWqeReached) {
  Pair pair;
  pair.qp_options.has_receive_queue = false;
  pair.qp_options.uses_srq = true;
  pair.connect();
  pair.b.post_receive(*pair.qb, {End::sge(0, 100)}, 1);
  pair.b.post_receive(*pair.qb, {End::sge(0, 100)}, 2);
  pair.a.post(*pair.qa, send(0, 100));
  pair.drive();
  ASSERT_TRUE(pair.b.transport.modify(*pair.qb, QpState::kError, {}));
  pair.drive();
  EXPECT_THAT(pair.b.hca.receive_statuses(), ElementsAre(kSuccess));
  EXPECT_EQ(pair.b.hca.srq.size(), 1u);
  EXPECT_EQ(pair.b.hca.count(QpEvent::kLastWqeReached), 1u);
}

// IBTA 11.6.3.2: software may destroy the QP after this event, as no further WQE completes.
TEST(RcSrq, LastWqeReachedFollowsTheFlushOfTheLastWqe) {
  Pair pair;
  pair.qp_options.has_receive_queue = false;
  pair.qp_options.uses_srq = true;
  pair.connect();
  pair.script = [](const wire::IbPacket& packet, bool to_b) {
    return to_b && packet.info().last ? Fate::kLose : Fate::kDeliver;
  };
  pair.b.post_receive(*pair.qb, {End::sge(0, 3000)}, 1);
  pair.a.post(*pair.qa, send(0, 3000));
  pair.drive_for(10us);  // b has taken the receive request for the first packets
  ASSERT_TRUE(pair.b.hca.srq.empty());
  pair.b.post(*pair.qb, send(0, 100));
  pair.b.run(pair.now);  // its frame is not released yet
  ASSERT_EQ(pair.b.waiting, 1u);
  ASSERT_TRUE(pair.b.transport.modify(*pair.qb, QpState::kError, {}));
  pair.b.run(pair.now);
  EXPECT_TRUE(pair.b.hca.receives.empty());
  EXPECT_EQ(pair.b.hca.count(QpEvent::kLastWqeReached), 0u);
  pair.drive_for(10us);
  EXPECT_THAT(pair.b.hca.receive_statuses(), ElementsAre(kFlushed));
  EXPECT_EQ(pair.b.hca.count(QpEvent::kLastWqeReached), 1u);
}

TEST(RcSrq, QpWithoutAnyReceiveQueueRefusesSends) {
  Pair pair;
  pair.qp_options.has_receive_queue = false;
  pair.connect();
  pair.a.post(*pair.qa, send(0, 100));
  pair.drive();
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kRemoteInvalidRequest));
}

}  // namespace
}  // namespace softhca::rdma::test
