// An HCA made only of src/hca and src/rdma: transfers to a second one, and refusals.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tiny_hca/tiny_host.h"

namespace softhca::tiny {
namespace {

using rdma::WorkStatus;

class TinyHcaTest : public testing::Test {
 protected:
  TinyHcaTest() {
    EXPECT_TRUE(a.hca.connect_qp(a.qpn, b.lid, b.qpn));
    EXPECT_TRUE(b.hca.connect_qp(b.qpn, a.lid, a.qpn));
    a.fill(0, 0x40000, 1);
    b.fill(0, 0x40000, 2);
  }
  /// Runs until no work is left.
  void drive() {
    for (auto next = now; next != util::kNever;) {
      now = next;
      const auto next_a = a.hca.run(now);
      const auto next_b = b.hca.run(now);
      next = std::min(next_a, next_b);
      const bool carried_a = carry(a, b);
      const bool carried_b = carry(b, a);
      if (carried_a || carried_b) next = now;
    }
  }
  void expect_sends(Host& host, std::vector<WorkStatus> statuses) {
    std::vector<WorkStatus> found;
    for (const auto& completion : host.poll()) {
      if (!completion.receive) found.push_back(completion.status);
    }
    EXPECT_EQ(found, statuses);
  }

  Host a{"tiny a", 0x11};
  Host b{"tiny b", 0x22};
  util::Time now{};
  unsigned carried = 0;

 private:
  bool carry(Host& from, Host& to) {
    if (from.plug.waiting.empty()) return false;
    const auto frame = from.plug.waiting.front();
    std::vector<std::byte> bytes(frame.size());
    frame.copy_to(bytes);
    from.plug.waiting.pop_front();
    ++carried;
    to.hca.handle_frame(wire::Frame::from_bytes(bytes, wire::Link::kInfiniband), now);
    return true;
  }
};

TEST_F(TinyHcaTest, SendGoesToTheReceiveOfTheOther) {
  b.post_receive(0x50000, 0x8000);
  b.post_receive(0x58000, 0x100);
  a.post_send(Opcode::kSend, 0x100, 5000);
  a.post_send(Opcode::kSend, 0x2000, 77);
  drive();
  expect_sends(a, {WorkStatus::kSuccess, WorkStatus::kSuccess});
  const auto received = b.poll();
  ASSERT_EQ(received.size(), 2u);
  EXPECT_TRUE(received[0].receive);
  EXPECT_EQ(received[0].place, 0u);
  EXPECT_EQ(received[0].byte_count, 5000u);
  EXPECT_EQ(received[1].place, 3u) << "the first WQE names the second's place";
  EXPECT_EQ(received[1].byte_count, 77u);
  EXPECT_EQ(std::memcmp(a.at(0x100), b.at(0x50000), 5000), 0);
  EXPECT_EQ(std::memcmp(a.at(0x2000), b.at(0x58000), 77), 0);
}

TEST_F(TinyHcaTest, WriteGoesToTheMemoryOfTheOther) {
  a.post_send(Opcode::kWrite, 0x100, 50'000, b.key, 0x50000);
  drive();
  expect_sends(a, {WorkStatus::kSuccess});
  EXPECT_TRUE(b.poll().empty());
  EXPECT_EQ(std::memcmp(a.at(0x100), b.at(0x50000), 50'000), 0);
}

TEST_F(TinyHcaTest, ReadComesFromTheMemoryOfTheOther) {
  a.post_send(Opcode::kRead, 0x50000, 50'000, b.key, 0x100);
  drive();
  const auto completions = a.poll();
  ASSERT_EQ(completions.size(), 1u);
  EXPECT_EQ(completions[0].status, WorkStatus::kSuccess);
  EXPECT_EQ(completions[0].byte_count, 50'000u);
  EXPECT_EQ(std::memcmp(a.at(0x50000), b.at(0x100), 50'000), 0);
}

TEST_F(TinyHcaTest, QueuesGoRoundManyTimes) {
  for (unsigned i = 0; i < 100; ++i) {
    b.post_receive(0x50000, 0x1000);
    a.post_send(Opcode::kSend, i * 8, 100 + i);
    drive();
    expect_sends(a, {WorkStatus::kSuccess});
    const auto received = b.poll();
    ASSERT_EQ(received.size(), 1u) << i;
    EXPECT_EQ(received[0].byte_count, 100 + i);
    EXPECT_EQ(std::memcmp(a.at(i * 8), b.at(0x50000), 100 + i), 0);
  }
}

/// The low bits of a key are its index. The upper bits distinguish it from the key that had this
/// index before.
TEST_F(TinyHcaTest, AKeyThatIsGoneIsRefusedAlsoWhenItsIndexIsUsedAgain) {
  const auto index = [](rdma::MKey key) { return key.value() % TinyHca::kKeysMax; };
  const auto old = *b.hca.create_key(Host::kMemory, 0x1000, rdma::kRemoteWrite);
  auto key = old;
  do {
    ASSERT_TRUE(b.hca.destroy_key(key));
    key = *b.hca.create_key(Host::kMemory, 0x1000, rdma::kRemoteWrite);
  } while (index(key) != index(old));
  a.post_send(Opcode::kWrite, 0x100, 10, key, 0);
  a.post_send(Opcode::kWrite, 0x100, 10, old, 0);
  drive();
  expect_sends(a, {WorkStatus::kSuccess, WorkStatus::kRemoteAccess});
  EXPECT_EQ(b.hca.destroy_key(old).error().status, Status::kBadKey);
}

TEST_F(TinyHcaTest, AnUnknownOpcodeEndsTheQueuePairWithItsReason) {
  a.post_send(Opcode(9), 0, 10);
  a.post_send(Opcode::kWrite, 0, 10, b.key, 0);
  drive();
  const auto completions = a.poll();
  ASSERT_EQ(completions.size(), 2u);
  EXPECT_EQ(completions[0].status, WorkStatus::kLocalQpOperation);
  EXPECT_EQ(completions[0].reason, kUnknownOpcode);
  EXPECT_EQ(completions[1].status, WorkStatus::kFlushed);
}

TEST_F(TinyHcaTest, AChainThatLeavesTheQueueEndsTheQueuePair) {
  a.post_send(Opcode::kWrite, 0x100, 10, b.key, 0x50000);
  util::MutableView<wqe>(std::span(a.at(Host::kSends - Host::kMemory), std::size_t{wqe::kSize}))
      .set(wqe::next, 1u << Host::kLogCount);
  drive();
  EXPECT_EQ(a.hca.transport().find(a.qpn)->state(), rdma::QpState::kError);
  EXPECT_EQ(carried, 0u);
}

TEST_F(TinyHcaTest, AQueuePairWhoseCompletionsFindNoRoomEnds) {
  for (unsigned i = 0; i < 9; ++i) {
    a.post_send(Opcode::kWrite, 0x100, 10, b.key, 0x50000);
    drive();
  }
  EXPECT_EQ(a.hca.transport().find(a.qpn)->state(), rdma::QpState::kError);
  expect_sends(a, std::vector(8, WorkStatus::kSuccess));
}

TEST_F(TinyHcaTest, ACompletionQueueInUseIsNotDestroyed) {
  EXPECT_EQ(a.hca.destroy_cq(a.cqn).error().status, Status::kInUse);
  EXPECT_TRUE(a.hca.destroy_qp(a.qpn));
  EXPECT_TRUE(a.hca.destroy_cq(a.cqn));
  EXPECT_EQ(a.hca.destroy_cq(a.cqn).error().status, Status::kBadQueue);
}

TEST_F(TinyHcaTest, CommandsRefuseWhatTheDocumentDoesNotAllow) {
  EXPECT_EQ(a.hca.create_key(~0ull, 2, 0).error().status, Status::kBadKey);
  EXPECT_EQ(a.hca.create_cq({a.key, Host::kCq, 16}).error().status, Status::kBadQueue);
  EXPECT_EQ(a.hca.create_qp({.sends = {}, .receives = {}, .cqn = Cqn(9)}).error().status,
            Status::kBadQueue);
  EXPECT_EQ(a.hca.connect_qp(a.qpn, b.lid, b.qpn).error().status, Status::kBadTransition);
  EXPECT_EQ(a.hca.connect_qp(Qpn(9), b.lid, b.qpn).error().status, Status::kBadQueue);
}

}  // namespace
}  // namespace softhca::tiny
