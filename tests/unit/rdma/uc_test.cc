// UC: messages arrive whole or not at all, without a report (IBTA 9.8.2).

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rdma/pair.h"

namespace softhca::rdma::test {
namespace {

using ::testing::ElementsAre;
using enum WorkStatus;

class Uc : public ::testing::Test {
 protected:
  Uc() {
    pair.connect(QpType::kUc);
    pair.a.fill(0, 0x20000, 1);
  }
  void lose(std::initializer_list<unsigned> which) {
    pair.script = [this, lost = std::vector(which)](const wire::IbPacket&, bool) {
      const auto n = seen_++;
      return std::find(lost.begin(), lost.end(), n) != lost.end() ? Fate::kLose : Fate::kDeliver;
    };
  }
  void fail_send_queue();

  Pair pair;
  unsigned seen_ = 0;
};

TEST_F(Uc, SendAndWriteArriveAtEveryLength) {
  for (const auto length : {0u, 1u, 255u, 1024u, 1025u, 9000u}) {
    pair.b.post_receive(*pair.qb, {End::sge(0x20000, 9000)});
    pair.b.post_receive(*pair.qb, {});
    pair.a.post(*pair.qa, send(0, length));
    auto with_immediate = write(0, 0x30000, length);
    with_immediate.opcode = SendOpcode::kRdmaWriteWithImmediate;
    with_immediate.immediate = length;
    pair.a.post(*pair.qa, with_immediate);
    pair.a.post(*pair.qa, write(0, 0x40000, length));
    pair.drive();
    EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kSuccess, kSuccess, kSuccess));
    ASSERT_THAT(pair.b.hca.receive_statuses(), ElementsAre(kSuccess, kSuccess));
    EXPECT_EQ(pair.b.hca.receives[0].completion.byte_count, length);
    EXPECT_EQ(pair.b.hca.receives[1].completion.byte_count, length);
    EXPECT_EQ(pair.b.hca.receives[1].completion.immediate, length);
    for (const auto place : {0x20000, 0x30000, 0x40000}) {
      EXPECT_EQ(std::memcmp(pair.a.at(0), pair.b.at(place), length), 0);
    }
    pair.a.hca.sends.clear();
    pair.b.hca.receives.clear();
  }
  EXPECT_EQ(pair.b.transport.counters().tx_packets, 0u);
}

TEST_F(Uc, MessageThatLosesAPacketIsDroppedAndItsReceiveServesTheNext) {
  for (unsigned n = 0; n < 3; ++n) {
    Pair fresh;
    fresh.connect(QpType::kUc);
    fresh.a.fill(0, 6000, n);
    fresh.b.post_receive(*fresh.qb, {End::sge(0x20000, 6000)}, 1);
    unsigned seen = 0;
    fresh.script = [&](const wire::IbPacket&, bool) {
      return seen++ == n ? Fate::kLose : Fate::kDeliver;
    };
    fresh.a.post(*fresh.qa, send(0, 3000));
    fresh.a.post(*fresh.qa, send(3000, 3000));
    fresh.drive();
    EXPECT_THAT(fresh.a.hca.send_statuses(), ElementsAre(kSuccess, kSuccess));
    ASSERT_THAT(fresh.b.hca.receive_statuses(), ElementsAre(kSuccess)) << n;
    EXPECT_EQ(std::memcmp(fresh.a.at(3000), fresh.b.at(0x20000), 3000), 0);
    EXPECT_EQ(fresh.qb->state(), QpState::kRts);
  }
}

TEST_F(Uc, SendWithoutReceiveRequestIsDropped) {
  pair.a.post(*pair.qa, send(0, 3000));
  pair.drive();
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kSuccess));
  EXPECT_TRUE(pair.b.hca.receives.empty());
  EXPECT_EQ(pair.b.transport.counters().dropped_for(Drop::kNoReceive), 1u);
  EXPECT_EQ(pair.b.transport.counters().dropped_for(Drop::kUcMessage), 2u);
}

TEST_F(Uc, WriteThatAKeyRefusesIsDropped) {
  auto bad = write(0, 0, 3000);
  bad.rkey = MKey(0x999900);
  pair.a.post(*pair.qa, bad);
  pair.a.post(*pair.qa, write(0, 0x40000, 100));
  pair.drive();
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kSuccess, kSuccess));
  EXPECT_EQ(pair.qb->state(), QpState::kRts);
  EXPECT_EQ(std::memcmp(pair.a.at(0), pair.b.at(0x40000), 100), 0);
}

TEST_F(Uc, LocalErrorStopsTheSendQueueAndLeavesTheReceiveQueueWorking) {
  auto bad = write(0, 0, 100);
  bad.sges[0].lkey = MKey(0x999900);
  pair.a.post(*pair.qa, write(0, 0, 8));
  pair.a.post(*pair.qa, bad);
  pair.a.post(*pair.qa, write(0, 0, 8));
  pair.drive();
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kSuccess, kLocalProtection, kFlushed));
  EXPECT_EQ(pair.qa->state(), QpState::kSqError);
  // Later sends are flushed; receives still work.
  pair.a.post(*pair.qa, write(0, 0, 8));
  pair.a.post_receive(*pair.qa, {End::sge(0x20000, 100)});
  pair.b.post(*pair.qb, send(0, 100));
  pair.drive();
  EXPECT_EQ(pair.a.hca.sends.back().status, kFlushed);
  EXPECT_THAT(pair.a.hca.receive_statuses(), ElementsAre(kSuccess));
  // SQE to RTS: the send queue works again.
  ASSERT_TRUE(pair.a.transport.modify(*pair.qa, QpState::kRts, pair.qa->attributes()));
  pair.a.hca.sends.clear();
  pair.a.post(*pair.qa, write(0, 0x40000, 100));
  pair.drive();
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kSuccess));
  EXPECT_EQ(std::memcmp(pair.a.at(0), pair.b.at(0x40000), 100), 0);
}

/// Takes a to SQE with one failed request.
void Uc::fail_send_queue() {
  auto bad = write(0, 0, 100);
  bad.sges[0].lkey = MKey(0x999900);
  pair.a.post(*pair.qa, bad);
  pair.drive();
  ASSERT_EQ(pair.qa->state(), QpState::kSqError);
  pair.a.hca.sends.clear();
}

TEST_F(Uc, LeavingSqeFlushesInTurnsWhatWasPostedAndSendsWhatComesLater) {
  pair.a.post(*pair.qa, write(0, 0x50000, 3000));
  fail_send_queue();
  constexpr std::size_t kOld = 1000;
  std::vector<std::uint32_t> cookies;
  auto& queue = pair.a.hca.sends_posted[pair.qa->qpn()];
  for (std::size_t i = 0; i < kOld; ++i) queue.push_back(write(0, 0x40000, 100));
  for (const auto& request : queue) cookies.push_back(request.cookie);
  ASSERT_TRUE(pair.a.transport.modify(*pair.qa, QpState::kRts, pair.qa->attributes()));
  const auto good = write(0x1000, 0x40000, 100);
  cookies.push_back(good.cookie);
  pair.a.post(*pair.qa, good);
  EXPECT_EQ(pair.a.run(pair.now, 64), pair.now) << "there is more to flush";
  EXPECT_LE(pair.a.hca.sends.size(), 64u);
  EXPECT_GE(pair.a.hca.sends.size(), 60u) << "a longer ring is work too";
  pair.drive();
  ASSERT_EQ(pair.a.hca.sends.size(), kOld + 1);
  for (std::size_t i = 0; i <= kOld; ++i) {
    EXPECT_EQ(pair.a.hca.sends[i].cookie, cookies[i]);
    EXPECT_EQ(pair.a.hca.sends[i].status, i < kOld ? kFlushed : kSuccess);
  }
  EXPECT_EQ(std::memcmp(pair.a.at(0x1000), pair.b.at(0x40000), 100), 0);
  EXPECT_EQ(pair.qa->next_send_psn(), pair.qb->next_receive_psn()) << "PSNs go on where they were";
}

TEST_F(Uc, RequestsFetchedBeforeSqeAreFlushedAfterIt) {
  pair.keep_sent = true;
  // The error is detected while earlier requests and the failed one wait for the fabric.
  pair.a.post(*pair.qa, write(0, 0x40000, 100));
  auto bad = write(0, 0, 100);
  bad.sges[0].lkey = MKey(0x999900);
  pair.a.post(*pair.qa, bad);
  pair.a.post(*pair.qa, write(0, 0x40000, 100));
  pair.a.run(pair.now);
  pair.carry();
  pair.a.run(pair.now, 1);  // completes the first and detects the error of the second
  ASSERT_EQ(pair.qa->state(), QpState::kSqError);
  ASSERT_TRUE(pair.a.transport.modify(*pair.qa, QpState::kRts, pair.qa->attributes()));
  pair.a.post(*pair.qa, write(0, 0x41000, 100));
  pair.drive();
  EXPECT_THAT(pair.a.hca.send_statuses(),
              ElementsAre(kSuccess, kLocalProtection, kFlushed, kSuccess));
  EXPECT_EQ(std::memcmp(pair.a.at(0), pair.b.at(0x41000), 100), 0);
  ASSERT_EQ(pair.sent.size(), 2u);
  EXPECT_EQ(pair.sent[1].packet.bth.psn, pair.sent[0].packet.bth.psn.next())
      << "PSNs of what was not sent are used again";
}

TEST_F(Uc, AQueueThatIsFilledAllTheTimeDoesNotHoldTheTransportWhenItLeavesSqe) {
  fail_send_queue();
  pair.a.hca.endless_sends = true;
  ASSERT_TRUE(pair.a.transport.modify(*pair.qa, QpState::kRts, pair.qa->attributes()));
  EXPECT_EQ(pair.a.hca.fetched, 0u) << "flushing is work of run()";
  EXPECT_EQ(pair.a.run(pair.now, 64), pair.now);
  EXPECT_LE(pair.a.hca.fetched, 64u);
}

TEST_F(Uc, ReadAndAtomicAreLocalErrors) {
  pair.a.post(*pair.qa, read(0, 0, 10));
  pair.drive();
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kLocalQpOperation));
}

// IBTA 9.9.3, faults of class D.
TEST_F(Uc, AMessageTooLongForItsReceiveIsDroppedAndTheReceiveServesTheNext) {
  pair.b.post_receive(*pair.qb, {End::sge(0x20000, 2000)}, 9);
  for (const auto length : {3000u, 2001u, 2000u}) pair.a.post(*pair.qa, send(0, length));
  pair.drive();
  EXPECT_THAT(pair.b.hca.receive_statuses(), ElementsAre(kSuccess));
  EXPECT_EQ(pair.b.hca.receives[0].completion.byte_count, 2000u);
  EXPECT_EQ(pair.b.hca.receives[0].completion.cookie, 9u);
  EXPECT_EQ(std::memcmp(pair.a.at(0), pair.b.at(0x20000), 2000), 0);
  EXPECT_EQ(pair.qb->state(), QpState::kRts);
  EXPECT_EQ(pair.b.counters.resp_local_length_error, 2u);
}

TEST_F(Uc, AnyLossLeavesOnlyWholeMessages) {
  for (unsigned seed = 1; seed <= 30; ++seed) {
    Pair lossy({.loss = 0.1, .duplicate = 0.05, .late = 0.05}, seed);
    lossy.connect(QpType::kUc);
    for (unsigned i = 0; i < 100; ++i) {
      std::memset(lossy.a.at(i * 0x1000), static_cast<int>(i), 0x1000);
      lossy.b.post_receive(*lossy.qb, {End::sge(0x100000 + i * 0x1000, 0x1000)}, i);
      lossy.a.post(*lossy.qa, send(i * 0x1000, 0x1000));
    }
    lossy.drive();
    EXPECT_EQ(lossy.a.hca.sends.size(), 100u);
    // Each message has four packets: about 60 of 100 messages stay whole.
    EXPECT_GT(lossy.b.hca.receives.size(), 30u) << seed;
    EXPECT_LT(lossy.b.hca.receives.size(), 90u) << seed;
    int last = -1;
    for (std::size_t n = 0; n < lossy.b.hca.receives.size(); ++n) {
      const auto& completion = lossy.b.hca.receives[n].completion;
      ASSERT_EQ(completion.status, kSuccess);
      ASSERT_EQ(completion.cookie, n) << "a broken message gives its receive to the next";
      ASSERT_EQ(completion.byte_count, 0x1000u);
      const auto* bytes = lossy.b.at(0x100000 + n * 0x1000);
      for (std::size_t i = 1; i < 0x1000; ++i) ASSERT_EQ(bytes[0], bytes[i]);
      ASSERT_GT(std::to_integer<int>(bytes[0]), last) << "in order, and none twice";
      last = std::to_integer<int>(bytes[0]);
    }
  }
}

}  // namespace
}  // namespace softhca::rdma::test
