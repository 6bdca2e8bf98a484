// The driver on two devices: transfers of RC queue pairs (JingZhao 3.2.6, 3.3, 3.4).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "jingzhao/world.h"

namespace softhca::jingzhao::test {
namespace {

using driver::SendOpcode;
using driver::SendRequest;

class JingzhaoRc : public testing::Test {
 protected:
  JingzhaoRc() {
    world.open();
    a.emplace(world.a());
    b.emplace(world.b());
    connect(*a, *b);
    fill(a->memory, 1);
    fill(b->memory, 2);
  }
  SendRequest request(SendOpcode opcode, const Sge& piece, std::uint64_t remote = 0) const {
    return {.id = 7,
            .opcode = opcode,
            .pieces = {&piece, 1},
            .remote_address = b->address(remote),
            .rkey = b->key->key()};
  }
  World world;
  std::optional<Side> a;
  std::optional<Side> b;
};

TEST_F(JingzhaoRc, SendGoesToTheReceiveOfTheOther) {
  b->receive(3, 0x1000, 0x4000);
  const auto piece = a->piece(0x10, 5000);
  ASSERT_EQ(a->qp->post_send(request(SendOpcode::kSend, piece)), PostStatus::kOk);
  const auto received = wait(world, *b->receive_cq);
  expect_success(received, 3, CompletionOpcode::kReceive);
  EXPECT_EQ(received[0].byte_count, 5000u);
  EXPECT_EQ(received[0].source_qpn, a->qp->qpn());
  const auto sent = wait(world, *a->send_cq);
  expect_success(sent, 7, CompletionOpcode::kSend);
  EXPECT_EQ(sent[0].byte_count, 5000u) << "\"bytes sent or received\"";
  EXPECT_TRUE(same(a->bytes(0x10, 5000), b->bytes(0x1000, 5000)));
}

TEST_F(JingzhaoRc, WriteGoesToTheMemoryOfTheOther) {
  const auto piece = a->piece(0x10, 30'000);
  ASSERT_EQ(a->qp->post_send(request(SendOpcode::kRdmaWrite, piece, 0x1003)), PostStatus::kOk);
  expect_success(wait(world, *a->send_cq), 7, CompletionOpcode::kRdmaWrite);
  EXPECT_TRUE(same(a->bytes(0x10, 30'000), b->bytes(0x1003, 30'000)));
  EXPECT_TRUE(wait(world, *b->receive_cq).empty());
}

TEST_F(JingzhaoRc, ReadComesFromTheMemoryOfTheOther) {
  const auto piece = a->piece(0x10, 30'000);
  ASSERT_EQ(a->qp->post_send(request(SendOpcode::kRdmaRead, piece, 0x1003)), PostStatus::kOk);
  const auto done = wait(world, *a->send_cq);
  expect_success(done, 7, CompletionOpcode::kRdmaRead);
  EXPECT_EQ(done[0].byte_count, 30'000u);
  EXPECT_TRUE(same(a->bytes(0x10, 30'000), b->bytes(0x1003, 30'000)));
}

TEST_F(JingzhaoRc, ImmediateDataComeAsANumberWithSendAndWrite) {
  b->receive(3, 0x1000, 0x100);
  b->receive(4, 0x1000, 0x100);
  const auto piece = a->piece(0, 100);
  auto send = request(SendOpcode::kSendWithImmediate, piece);
  send.immediate = 0x11223344;
  ASSERT_EQ(a->qp->post_send(send), PostStatus::kOk);
  auto write = request(SendOpcode::kRdmaWriteWithImmediate, piece, 0x2000);
  write.immediate = 0x55667788;
  ASSERT_EQ(a->qp->post_send(write), PostStatus::kOk);
  const auto received = wait(world, *b->receive_cq, 2);
  ASSERT_EQ(received.size(), 2u);
  EXPECT_EQ(received[0].immediate, 0x11223344u);
  EXPECT_EQ(received[0].opcode, CompletionOpcode::kReceive);
  EXPECT_EQ(received[1].immediate, 0x55667788u);
  EXPECT_EQ(received[1].opcode, CompletionOpcode::kReceiveRdmaWithImmediate);
  EXPECT_EQ(received[1].byte_count, 100u);
  EXPECT_TRUE(same(a->bytes(0, 100), b->bytes(0x2000, 100)));
}

TEST_F(JingzhaoRc, InlineDataAreTakenWhenTheRequestIsPosted) {
  auto data = pattern(60, 9);
  SendRequest write{.id = 1,
                    .opcode = SendOpcode::kRdmaWrite,
                    .inline_data = data,
                    .remote_address = b->address(0x100),
                    .rkey = b->key->key()};
  ASSERT_EQ(a->qp->post_send(write), PostStatus::kOk);
  expect_success(wait(world, *a->send_cq), 1, CompletionOpcode::kRdmaWrite);
  EXPECT_TRUE(same(data, b->bytes(0x100, 60)));
}

TEST_F(JingzhaoRc, AtomicsReturnTheOldValueAsANumberOfTheHost) {
  const std::uint64_t before = 0x1122334455667788;
  std::memcpy(b->bytes(0x200, 8).data(), &before, 8);
  const auto piece = a->piece(0x300, 8);
  auto add = request(SendOpcode::kFetchAdd, piece, 0x200);
  add.swap_or_add = 0x10;
  ASSERT_EQ(a->qp->post_send(add), PostStatus::kOk);
  const auto added = wait(world, *a->send_cq);
  expect_success(added, 7, CompletionOpcode::kFetchAdd);
  EXPECT_EQ(added[0].byte_count, 8u);
  std::uint64_t old, now;
  std::memcpy(&old, a->bytes(0x300, 8).data(), 8);
  std::memcpy(&now, b->bytes(0x200, 8).data(), 8);
  EXPECT_EQ(old, before);
  EXPECT_EQ(now, before + 0x10);
  auto swap = request(SendOpcode::kCompareSwap, piece, 0x200);
  swap.compare = now;
  swap.swap_or_add = 5;
  ASSERT_EQ(a->qp->post_send(swap), PostStatus::kOk);
  expect_success(wait(world, *a->send_cq), 7, CompletionOpcode::kCompareSwap);
  std::memcpy(&now, b->bytes(0x200, 8).data(), 8);
  EXPECT_EQ(now, 5u);
}

TEST_F(JingzhaoRc, AChainOfWqesIsExecutedByOneDoorbell) {
  std::vector<Sge> pieces;
  for (std::size_t i = 0; i != 10; ++i) pieces.push_back(a->piece(100 * i, 100));
  std::vector<SendRequest> requests;
  for (std::size_t i = 0; i != 10; ++i) {
    requests.push_back(request(SendOpcode::kRdmaWrite, pieces[i], 0x4000 + 100 * i));
    requests.back().id = i;
  }
  auto status = PostStatus::kOk;
  ASSERT_EQ(a->qp->post_send(requests, status), 10u);
  const auto done = wait(world, *a->send_cq, 10);
  ASSERT_EQ(done.size(), 10u);
  for (std::size_t i = 0; i != 10; ++i) EXPECT_EQ(done[i].id, i);
  EXPECT_TRUE(same(a->bytes(0, 1000), b->bytes(0x4000, 1000)));
}

TEST_F(JingzhaoRc, QueuesGoRoundManyTimes) {
  for (unsigned i = 0; i != 1000; ++i) {
    b->receive(i, 0x1000, 0x100);
    const auto piece = a->piece(i, 1 + i % 200);
    auto send = request(SendOpcode::kSend, piece);
    send.id = i;
    ASSERT_EQ(a->qp->post_send(send), PostStatus::kOk);
    expect_success(wait(world, *b->receive_cq), i, CompletionOpcode::kReceive);
    expect_success(wait(world, *a->send_cq), i, CompletionOpcode::kSend);
    ASSERT_TRUE(same(a->bytes(i, 1 + i % 200), b->bytes(0x1000, 1 + i % 200)));
  }
}

TEST_F(JingzhaoRc, AnEmptyReceiveQueueIsNotReadyAndIsAskedAgain) {
  const auto piece = a->piece(0, 100);
  ASSERT_EQ(a->qp->post_send(request(SendOpcode::kSend, piece)), PostStatus::kOk);
  world.advance(std::chrono::milliseconds(1));
  b->receive(3, 0x1000, 0x100);
  expect_success(wait(world, *b->receive_cq), 3, CompletionOpcode::kReceive);
  expect_success(wait(world, *a->send_cq), 7, CompletionOpcode::kSend);
}

TEST_F(JingzhaoRc, ACompletionEventComesOnceForACqThatIsArmed) {
  b->receive_cq->arm();
  for (unsigned i = 0; i != 2; ++i) {
    b->receive(i, 0x1000, 0x100);
    const auto piece = a->piece(0, 100);
    ASSERT_EQ(a->qp->post_send(request(SendOpcode::kSend, piece)), PostStatus::kOk);
    ASSERT_EQ(wait(world, *a->send_cq).size(), 1u);
  }
  EXPECT_EQ(world.b().host->interrupts(1), 1u);
  EXPECT_EQ(world.b().hca->poll_completion_event(), b->receive_cq.get());
  EXPECT_EQ(world.b().hca->poll_completion_event(), nullptr);
}

TEST_F(JingzhaoRc, ARequestThatIsCompleteMakesTheEventToo) {
  for (unsigned i = 0; i != 3; ++i) {
    // From the second round on the CQ's context is cached.
    if (i != 0) a->send_cq->arm();
    const auto piece = a->piece(0, 100);
    ASSERT_EQ(a->qp->post_send(request(SendOpcode::kRdmaWrite, piece, 0x2000)), PostStatus::kOk);
    ASSERT_EQ(wait(world, *a->send_cq).size(), 1u);
    EXPECT_EQ(world.a().hca->poll_completion_event(), i == 0 ? nullptr : a->send_cq.get()) << i;
  }
}

}  // namespace
}  // namespace softhca::jingzhao::test
