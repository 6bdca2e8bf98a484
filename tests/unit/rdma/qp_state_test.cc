// The verbs that walk the QP state table (IBTA 10.3.1, 11.2.4.2), scheduling, memory keys.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rdma/pair.h"

namespace softhca::rdma::testing {
namespace {

TEST(QpStates, ResetCannotGoToErrorAndAnyRefusalChangesNothing) {
  Pair pair;
  auto attributes = pair.attributes_for(pair.a, pair.b, Qpn(0x22));
  auto& qp = pair.a.transport.create_qp(Qpn(0x11), QpType::kRc, attributes, {});
  EXPECT_EQ(qp.state(), QpState::kReset);
  for (const auto to :
       {QpState::kRtr, QpState::kRts, QpState::kSqDrain, QpState::kSqError, QpState::kError}) {
    const auto refusal = pair.a.transport.modify(qp, to, attributes);
    EXPECT_TRUE(refusal);
    EXPECT_FALSE(refusal.reason.empty());
    EXPECT_EQ(qp.state(), QpState::kReset);
  }
}

TEST(QpStates, PathMtuMustBeOneOfTheFive) {
  Pair pair;
  auto attributes = pair.attributes_for(pair.a, pair.b, Qpn(0x22));
  auto& qp = pair.a.transport.create_qp(Qpn(0x11), QpType::kRc, attributes, {});
  ASSERT_FALSE(pair.a.transport.modify(qp, QpState::kInit, attributes));
  for (const auto mtu : {0u, 128u, 257u, 1500u, 8192u}) {
    attributes.path_mtu = mtu;
    EXPECT_TRUE(pair.a.transport.modify(qp, QpState::kRtr, attributes));
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
  ASSERT_FALSE(pair.a.transport.modify(*pair.qa, QpState::kRts, attributes));
  EXPECT_EQ(pair.qa->next_receive_psn(), 0x100u);
  EXPECT_EQ(pair.qa->next_send_psn(), 0xFFFFF0u);
  EXPECT_EQ(pair.qa->attributes().path_mtu, 1024u);
}

// IBTA 11.2.4.2 Table 91: a path, its MTU and what the responder keeps are the connection's.
TEST(QpStates, ARunningQpKeepsWhatItsTransitionDoesNotName) {
  Pair pair;
  pair.connect();
  auto attributes = pair.qa->attributes();
  attributes.remote_qpn = Qpn(0x99);
  attributes.path.dst_gid = Gid::from_ipv4(1);
  attributes.retry_count = 1;
  attributes.max_rd_atomic = 1;
  attributes.max_dest_rd_atomic = 1;
  attributes.pkey = 0x8001;
  attributes.remote_write = false;
  attributes.min_rnr_timer = 3;
  ASSERT_FALSE(pair.a.transport.modify(*pair.qa, QpState::kRts, attributes));
  const auto& now = pair.qa->attributes();
  EXPECT_EQ(now.remote_qpn, Qpn(0x22));
  EXPECT_EQ(now.path.dst_gid, pair.b.gid.gid);
  EXPECT_EQ(now.retry_count, 7u);
  EXPECT_EQ(now.max_rd_atomic, 4u);
  EXPECT_EQ(now.max_dest_rd_atomic, 4u);
  EXPECT_EQ(now.pkey, 0xFFFF);
  EXPECT_FALSE(now.remote_write);
  EXPECT_EQ(now.min_rnr_timer, 3u);
}

TEST(QpStates, OptionalAttributesAreTakenOnlyIfTheyAreGiven) {
  Pair pair;
  pair.connect();
  auto attributes = pair.qa->attributes();
  attributes.remote_write = false;
  attributes.min_rnr_timer = 3;
  ASSERT_FALSE(pair.a.transport.modify(*pair.qa, QpState::kRts, attributes,
                                       {spec::infiniband::QpAttribute::kMinRnrTimer}));
  EXPECT_TRUE(pair.qa->attributes().remote_write);
  EXPECT_EQ(pair.qa->attributes().min_rnr_timer, 3u);
}

// A drained QP may get a deeper responder: duplicates of before are still answered.
TEST(QpStates, ADrainedResponderTakesMoreReadsAndKeepsItsAtomicResults) {
  Pair pair;
  pair.adjust = [](QpAttributes& a) { a.max_rd_atomic = a.max_dest_rd_atomic = 2; };
  pair.connect();
  for (unsigned i = 0; i < 3; ++i) pair.a.post(*pair.qa, fetch_add(8 * i, 0x100, 1));
  pair.drive();
  auto attributes = pair.qb->attributes();
  attributes.max_dest_rd_atomic = 16;
  ASSERT_FALSE(pair.b.transport.modify(*pair.qb, QpState::kSqDrain, attributes));
  EXPECT_EQ(pair.qb->attributes().max_dest_rd_atomic, 2u) << "RTS to SQD takes nothing";
  ASSERT_FALSE(pair.b.transport.modify(*pair.qb, QpState::kSqDrain, attributes));
  EXPECT_EQ(pair.qb->attributes().max_dest_rd_atomic, 16u);
  attributes = pair.qa->attributes();
  attributes.max_rd_atomic = 16;
  Pair::change_drained(pair.a, *pair.qa, attributes);
  // Answers are lost once, so that all sixteen are asked for twice.
  unsigned lost = 0;
  pair.script = [&](const wire::RocePacket& packet, bool) {
    return !packet.info().request && lost++ < 16 ? Fate::kLose : Fate::kDeliver;
  };
  for (unsigned i = 0; i < 16; ++i) pair.a.post(*pair.qa, fetch_add(0x200 + 8 * i, 0x100, 1));
  pair.drive();
  EXPECT_EQ(pair.b.load64(0x100), 19u);
  for (unsigned i = 0; i < 16; ++i) EXPECT_EQ(pair.a.load64(0x200 + 8 * i), 3 + i);
  EXPECT_EQ(pair.qa->state(), QpState::kRts);
}

TEST(QpStates, DoorbellInResetHasNoEffect) {
  Pair pair;
  auto& qp = pair.a.transport.create_qp(Qpn(0x11), QpType::kRc, {}, {});
  pair.a.post(qp, write(0, 0, 8));
  pair.drive();
  EXPECT_TRUE(pair.a.hca.sends.empty());
  EXPECT_EQ(pair.a.hca.sends_posted[Qpn(0x11)].size(), 1u);
}

TEST(QpStates, ReceivesPostedInInitAreUsedAfterRtr) {
  Pair pair;
  pair.connect();
  ASSERT_FALSE(pair.b.transport.modify(*pair.qb, QpState::kReset, {}));
  const auto attributes = pair.attributes_for(pair.b, pair.a, Qpn(0x11));
  ASSERT_FALSE(pair.b.transport.modify(*pair.qb, QpState::kInit, attributes));
  pair.b.post_receive(*pair.qb, {End::sge(0, 100)}, 4);
  ASSERT_FALSE(pair.b.transport.modify(*pair.qb, QpState::kRtr, attributes));
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
    qps.push_back(&pair.a.transport.create_qp(Qpn(0x100 + i), QpType::kRc, attributes, {}));
    Pair::to_rts(pair.a, *qps.back(), attributes);
    pair.a.post(*qps.back(), write(0, 0, 100 * 1024));
  }
  std::map<std::uint32_t, unsigned> sent;
  pair.script = [&](const wire::RocePacket& packet, bool) {
    ++sent[packet.bth.dest_qp.value()];
    return Fate::kLose;
  };
  EXPECT_EQ(pair.a.transport.run(pair.now, 128), pair.now) << "there is more to send";
  ASSERT_EQ(sent.size(), 4u);
  for (const auto& [qpn, packets] : sent) EXPECT_EQ(packets, 32u);
}

TEST(Scheduling, IdleTransportAsksForNoCall) {
  Pair pair;
  pair.connect();
  pair.a.post(*pair.qa, write(0, 0, 8));
  pair.drive();
  EXPECT_EQ(pair.a.transport.run(pair.now), util::kNever);
}

TEST(Scheduling, ManyTimersExpireInOrder) {
  Pair pair;
  std::vector<QueuePair*> qps;
  for (unsigned i = 0; i < 100; ++i) {
    auto attributes = pair.attributes_for(pair.a, pair.b, Qpn(0x900));
    attributes.ack_timeout = static_cast<std::uint8_t>(1 + i * 7 % 13);
    attributes.retry_count = 0;
    qps.push_back(&pair.a.transport.create_qp(Qpn(0x100 + i), QpType::kRc, attributes, {}));
    Pair::to_rts(pair.a, *qps.back(), attributes);
    pair.a.post(*qps.back(), write(0, 0, 8));
    if (i % 5 == 0) pair.a.transport.run(pair.now);
  }
  // Some go away while their timers run.
  pair.a.transport.run(pair.now);
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

TEST(Keys, ReservedKeyNeedsThePermissionOfTheQp) {
  Pair pair;
  pair.connect();
  pair.a.transport.keys().set_reserved_lkey(MKey(0x500));
  auto request = write(0, 0x1000, 100);
  request.sges = {{kMemoryIova, 100, MKey(0x500)}};
  pair.a.fill(0, 100, 3);
  auto attributes = pair.qa->attributes();
  attributes.reserved_lkey = true;
  ASSERT_FALSE(pair.a.transport.modify(*pair.qa, QpState::kRts, attributes));
  pair.a.post(*pair.qa, request);
  pair.drive();
  EXPECT_EQ(pair.a.hca.sends.at(0).status, WorkStatus::kSuccess);
  EXPECT_EQ(std::memcmp(pair.a.at(0), pair.b.at(0x1000), 100), 0);
  attributes.reserved_lkey = false;
  ASSERT_FALSE(pair.a.transport.modify(*pair.qa, QpState::kRts, attributes));
  pair.a.post(*pair.qa, request);
  pair.drive();
  EXPECT_EQ(pair.a.hca.sends.at(1).status, WorkStatus::kLocalProtection);
}

TEST(Keys, ScatteredPagesAreFoundByAnyOffset) {
  pcie::DmaSpace dma;
  std::vector<std::byte> memory(64 * 4096);
  for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = std::byte(i / 4096 * 31 + i);
  ASSERT_TRUE(dma.map(0x10000, memory.size(), memory.data(), pcie::DmaAccess::kReadWrite));
  KeyTable keys(dma);
  MemoryKey::Attributes attributes;
  attributes.key = MKey(0x100);
  attributes.access = kLocalRead | kLocalWrite;
  attributes.start = 0x123456;  // in the middle of its first page
  attributes.length = 60 * 4096;
  for (unsigned i = 0; i < 61; ++i) attributes.pages.push_back(0x10000 + (i * 23 % 64) * 4096);
  auto& key = keys.insert(attributes);
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    const std::uint64_t offset = random() % (60 * 4096);
    std::vector<std::byte> out(std::min<std::uint64_t>(60 * 4096 - offset, random() % 9000));
    ASSERT_TRUE(keys.check(attributes.key, {}, attributes.start + offset, out.size(), kLocalRead));
    ASSERT_TRUE(keys.read(key, attributes.start + offset, out));
    for (std::size_t i = 0; i < out.size(); ++i) {
      const auto at = 0x456 + offset + i;
      ASSERT_EQ(out[i], memory[(at / 4096 * 23 % 64) * 4096 + at % 4096]);
    }
  }
  EXPECT_FALSE(keys.check(attributes.key, {}, attributes.start - 1, 1, kLocalRead));
  EXPECT_FALSE(keys.check(attributes.key, {}, attributes.start + 60 * 4096, 1, kLocalRead));
  EXPECT_FALSE(keys.check(attributes.key, {}, attributes.start, UINT64_MAX, kLocalRead));
  EXPECT_TRUE(keys.erase(attributes.key));
  EXPECT_FALSE(keys.erase(attributes.key));
}

TEST(Keys, MemoryIsUnreachableOnceItsMappingIsGone) {
  Pair pair;
  pair.connect();
  pair.a.post(*pair.qa, write(0, 0, 100));
  pair.drive();
  ASSERT_TRUE(pair.b.dma.unmap(kMemoryIova, kMemorySize));
  pair.a.post(*pair.qa, write(0, 0, 100));
  pair.drive();
  EXPECT_THAT(pair.a.hca.send_statuses(),
              ::testing::ElementsAre(WorkStatus::kSuccess, WorkStatus::kRemoteOperation));
}

TEST(Keys, IndirectKeysThatLeadToThemselvesEnd) {
  Pair pair;
  pair.connect();
  MemoryKey::Attributes loop;
  loop.key = MKey(0xA00);
  loop.pd = kPd;
  loop.access = kLocalRead | kLocalWrite | kRemoteWrite;
  loop.start = 0;
  loop.length = 1000;
  loop.indirect = {{0, 1000, loop.key}};
  pair.b.transport.keys().insert(loop);
  auto request = write(0, 0, 100);
  request.rkey = loop.key;
  request.remote_address = 0;
  pair.a.post(*pair.qa, request);
  pair.drive();
  EXPECT_EQ(pair.a.hca.sends.at(0).status, WorkStatus::kRemoteOperation);
}

}  // namespace
}  // namespace softhca::rdma::testing
