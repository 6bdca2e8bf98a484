// A completion returns the buffer to software: no part of the device may refer to it afterwards
// (PRM 7.4.3, "neither WQE nor data buffers associated with this WQE can be modified by SW until
// WQE ownership has been returned"). Frames are queued by reference, so a premature completion
// shows as changed bytes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rdma/pair.h"

namespace softhca::rdma::test {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using enum WorkStatus;

class BufferOwnership : public ::testing::Test {
 protected:
  void connect(QpType type) {
    pair.connect(type);
    pair.a.fill(0, 0x20000, 1);
    original = pair.a.memory;
    pair.a.use_memory_again();
  }
  SendRequest datagram(std::uint64_t offset, std::uint32_t length) {
    auto request = datagram_to(pair.b, offset, length);
    return request;
  }
  /// True if `length` bytes at `at` in b equal those that a first had at `from`.
  bool arrived(std::uint64_t from, std::uint64_t at, std::size_t length) {
    return std::memcmp(original.data() + from, pair.b.at(at), length) == 0;
  }

  Pair pair;
  std::vector<std::byte> original;
};

TEST_F(BufferOwnership, UcSendsAndWritesCompleteAfterTheirPayloadIsRead) {
  connect(QpType::kUc);
  for (const auto length : {1u, 100u, 1024u, 9000u}) {
    pair.a.memory = original;
    pair.b.post_receive(*pair.qb, {End::sge(0x40000, 9000)});
    pair.a.post(*pair.qa, send(0, length));
    pair.a.post(*pair.qa, write(0x8000, 0x50000, length));
    pair.drive();
    EXPECT_TRUE(arrived(0, 0x40000, length)) << length;
    EXPECT_TRUE(arrived(0x8000, 0x50000, length)) << length;
  }
  EXPECT_EQ(pair.a.hca.send_statuses(), std::vector(8, kSuccess));
}

TEST_F(BufferOwnership, DatagramsCompleteAfterTheirPayloadIsRead) {
  connect(QpType::kUd);
  for (unsigned i = 0; i < 100; ++i) {
    pair.b.post_receive(*pair.qb, {End::sge(0x40000 + 0x1000 * i, 2000)});
    pair.a.post(*pair.qa, datagram(1024 * i, 1024));
  }
  pair.drive();
  ASSERT_EQ(pair.a.hca.send_statuses(), std::vector(100, kSuccess));
  for (unsigned i = 0; i < 100; ++i) {
    ASSERT_TRUE(arrived(1024 * i, 0x40000 + 0x1000 * i + 40, 1024)) << i;
  }
}

TEST_F(BufferOwnership, RunIsDueAgainWhileACompletionWaitsForTheFabric) {
  connect(QpType::kUd);
  pair.a.post(*pair.qa, datagram(0, 8));
  EXPECT_EQ(pair.a.run(pair.now), pair.now);
  EXPECT_EQ(pair.a.run(pair.now), pair.now);
  EXPECT_TRUE(pair.a.hca.sends.empty());
  pair.carry();
  EXPECT_EQ(pair.a.run(pair.now), util::kNever);
  EXPECT_EQ(pair.a.hca.sends.size(), 1u);
}

TEST_F(BufferOwnership, EachQpCompletesWhatIsReleased) {
  connect(QpType::kUd);
  std::vector<QueuePair*> qps;
  for (unsigned i = 0; i < 50; ++i) {
    const auto attributes = pair.attributes_for(pair.a, pair.b, Qpn(0));
    qps.push_back(&pair.a.create_qp(Qpn(0x100 + i), QpType::kUd, attributes, {}));
    Pair::to_rts(pair.a, *qps.back(), attributes);
  }
  for (unsigned round = 1; round <= 5; ++round) {
    for (unsigned i = 0; i < 50; i += round) pair.a.post(*qps[i], datagram(0, 8));
    pair.a.run(pair.now);
    if (round == 3) pair.a.transport.destroy_qp(*std::exchange(qps[7], qps[8]));
    pair.drive();
  }
  // 50, 25, 17, 13 and 10 were posted. QP 7 posted none in the third round.
  EXPECT_EQ(pair.a.hca.sends.size(), 115u);
}

TEST_F(BufferOwnership, SqdIsReportedWhenTheLastSendIsRead) {
  connect(QpType::kUc);
  pair.a.post(*pair.qa, write(0, 0x40000, 3000));
  pair.a.run(pair.now);
  ASSERT_TRUE(pair.a.transport.modify(*pair.qa, QpState::kSqDrain, pair.qa->attributes()));
  pair.a.run(pair.now);
  EXPECT_FALSE(pair.qa->drained());
  EXPECT_EQ(pair.a.hca.count(QpEvent::kSqDrained), 0u);
  pair.drive();
  EXPECT_TRUE(arrived(0, 0x40000, 3000));
  EXPECT_EQ(pair.a.hca.count(QpEvent::kSqDrained), 1u);
}

TEST_F(BufferOwnership, FlushedRequestsCompleteAfterWhatWasSentIsRead) {
  for (const auto type : {QpType::kRc, QpType::kUc}) {
    Pair fresh;
    fresh.connect(type);
    fresh.a.fill(0, 0x20000, 1);
    const auto before = fresh.a.memory;
    fresh.a.use_memory_again();
    // Sending takes more than one run, so the request is begun and not complete.
    fresh.a.post(*fresh.qa, write(0, 0x40000, 100 * 1024));
    fresh.a.run(fresh.now, 32);
    ASSERT_TRUE(fresh.a.transport.modify(*fresh.qa, QpState::kError, {}));
    fresh.a.run(fresh.now);
    EXPECT_TRUE(fresh.a.hca.sends.empty());
    fresh.drive();
    EXPECT_THAT(fresh.a.hca.send_statuses(), ElementsAre(kFlushed));
    EXPECT_EQ(std::memcmp(before.data(), fresh.b.at(0x40000), 32 * 1024), 0);
  }
}

TEST_F(BufferOwnership, AMessageThatFailsHalfwayCompletesAfterItsFirstHalfIsRead) {
  connect(QpType::kUc);
  pair.a.post(*pair.qa, write(0, 0x40000, 100 * 1024));
  pair.a.post(*pair.qa, write(0x1F000, 0x60000, 8));
  pair.a.run(pair.now, 32);
  pair.a.keys.find(kKey)->set_free(true);
  pair.a.run(pair.now, 32);
  EXPECT_TRUE(pair.a.hca.sends.empty());
  pair.drive();
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kLocalProtection, kFlushed));
  EXPECT_TRUE(arrived(0, 0x40000, 32 * 1024));
  EXPECT_EQ(pair.qa->state(), QpState::kSqError);
}

TEST_F(BufferOwnership, ALateAcknowledgementDoesNotCompleteWhatIsBeingSentAgain) {
  pair.adjust = [](QpAttributes& attributes) { attributes.ack_timeout = 8; };  // 1.05 ms
  connect(QpType::kRc);
  std::vector<std::byte> acknowledgement;
  pair.b.on_transmit = [&](End&, const wire::Frame& frame) {
    acknowledgement.resize(frame.size());
    frame.copy_to(acknowledgement);
  };
  for (unsigned i = 0; i < 3; ++i) pair.a.post(*pair.qa, write(3000 * i, 0x40000 + 3000 * i, 3000));
  pair.drive_for(1ms);
  pair.now += 1ms;
  pair.a.run(pair.now);
  EXPECT_EQ(pair.a.counters.retransmitted_packets, 9u);
  pair.a.transport.handle_frame(wire::Frame::from_bytes(acknowledgement), pair.now);
  pair.a.run(pair.now);
  EXPECT_TRUE(pair.a.hca.sends.empty());
  pair.carry();
  pair.a.run(pair.now);
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kSuccess, kSuccess, kSuccess));
  EXPECT_EQ(pair.a.counters.retransmitted_packets, 9u) << "what is acknowledged is not sent again";
  // The QP continues where it stopped.
  pair.a.post(*pair.qa, write(0x10000, 0x50000, 3000));
  pair.a.post(*pair.qa, read(0x18000, 0x50000, 3000));
  pair.drive_for(10us);
  EXPECT_TRUE(arrived(0x10000, 0x50000, 3000));
}

TEST_F(BufferOwnership, ARefusedRequestCompletesAfterWhatIsSentAgainIsRead) {
  pair.adjust = [](QpAttributes& attributes) { attributes.ack_timeout = 8; };  // 1.05 ms
  connect(QpType::kRc);
  auto bad = write(0, 0x40000, 200 * 1024);
  bad.rkey = MKey(0x999900);
  pair.a.post(*pair.qa, bad);
  pair.a.post(*pair.qa, write(0, 0x40000, 8));
  std::vector<std::byte> refusal;
  pair.b.on_transmit = [&](End&, const wire::Frame& frame) {
    refusal.resize(frame.size());
    frame.copy_to(refusal);
  };
  pair.drive_for(1ms);
  pair.now += 1ms;
  pair.a.run(pair.now);
  ASSERT_FALSE(refusal.empty());
  pair.a.transport.handle_frame(wire::Frame::from_bytes(refusal), pair.now);
  pair.a.run(pair.now);
  EXPECT_TRUE(pair.a.hca.sends.empty());
  pair.carry();
  pair.a.run(pair.now);
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kRemoteAccess, kFlushed));
  EXPECT_EQ(pair.qa->state(), QpState::kError);
}

TEST_F(BufferOwnership, ALocalInvalidateCompletesAfterEarlierFramesAreRead) {
  connect(QpType::kRc);
  // Frames of another QP may still refer to the key's memory.
  const auto attributes = pair.attributes_for(pair.a, pair.b, Qpn(0));
  auto& other = pair.a.create_qp(Qpn(0x100), QpType::kUd, attributes, {});
  Pair::to_rts(pair.a, other, attributes);
  pair.a.post(other, datagram(0, 1000));
  pair.a.run(pair.now);
  SendRequest invalidate;
  invalidate.opcode = SendOpcode::kLocal;
  invalidate.signaled = true;
  pair.a.post(*pair.qa, invalidate);
  pair.a.run(pair.now);
  EXPECT_EQ(pair.a.hca.executed.size(), 1u);
  pair.drive();
  EXPECT_EQ(pair.a.hca.sends.size(), 2u);
}

// The invalidate waits for earlier frames to leave. They leave with the READ's request, but nothing
// reports that before the READ response arrives.
TEST_F(BufferOwnership, TheAnswerToAReadBehindALocalInvalidateCompletesBoth) {
  connect(QpType::kRc);
  const auto attributes = pair.attributes_for(pair.a, pair.b, Qpn(0));
  auto& other = pair.a.create_qp(Qpn(0x100), QpType::kUd, attributes, {});
  Pair::to_rts(pair.a, other, attributes);
  std::vector<wire::Frame> frames;
  pair.a.on_transmit = pair.b.on_transmit = [&](End& end, const wire::Frame& frame) {
    ++end.waiting;
    frames.push_back(frame);
    frames.back().own_segments();
  };
  pair.a.post(other, datagram(0, 1000));
  pair.a.run(pair.now);
  SendRequest invalidate;
  invalidate.opcode = SendOpcode::kLocal;
  invalidate.signaled = true;
  pair.a.post(*pair.qa, invalidate);
  pair.a.post(*pair.qa, read(0x3000, 0x1000, 100));
  pair.a.run(pair.now);
  ASSERT_EQ(frames.size(), 2u);
  pair.a.waiting = 0;
  const auto request = frames.back();
  pair.b.transport.handle_frame(request, pair.now);
  pair.b.run(pair.now);
  ASSERT_EQ(frames.size(), 3u);
  const auto answer = frames.back();
  pair.a.transport.handle_frame(answer, pair.now);
  pair.a.run(pair.now);
  EXPECT_THAT(pair.a.hca.send_statuses(), ElementsAre(kSuccess, kSuccess, kSuccess));
}

}  // namespace
}  // namespace softhca::rdma::test
