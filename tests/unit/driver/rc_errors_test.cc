// Failing requests: the status, the side that reports it, and the fate of the other requests.
#include <cstring>

#include "driver/world.h"

namespace softhca::driver::test {
namespace {

using connectx::QpState;

class RcErrors : public ::testing::Test {
 protected:
  RcErrors() { world_.open(); }

  void make(const Endpoint::Options& a = {}, const Endpoint::Options& b = {}) {
    a_ = std::make_unique<Endpoint>(world_.a(), a);
    b_ = std::make_unique<Endpoint>(world_.b(), b);
  }
  SendRequest write(std::uint64_t id, std::span<const Sge> pieces) const {
    return {.id = id,
            .opcode = SendOpcode::kRdmaWrite,
            .pieces = pieces,
            .remote_address = b_->address(),
            .rkey = b_->key->key()};
  }
  /// The error ended the connection: the QP is in ERR, and new WQEs are flushed.
  void expect_error_state(Endpoint& endpoint) {
    EXPECT_EQ(must(endpoint.qp->query_state()), QpState::kError);
    const auto piece = endpoint.piece(0, 8);
    ASSERT_EQ(endpoint.qp->post_send({.id = 999, .pieces = {&piece, 1}, .signaled = false}),
              PostStatus::kOk);
    expect_error(wait(world_, *endpoint.send_cq), 999, WorkStatus::kFlushed);
  }

  World world_;
  std::unique_ptr<Endpoint> a_;
  std::unique_ptr<Endpoint> b_;
};

TEST_F(RcErrors, ABadRkeyIsARemoteAccessError) {
  make();
  connect(*a_, *b_);
  const auto piece = a_->piece(0, 64);
  for (const std::uint32_t wrong : {b_->key->key() ^ 1, b_->key->key() + 0x10000, 0u}) {
    auto request = write(1, {&piece, 1});
    request.rkey = wrong;
    ASSERT_EQ(a_->qp->post_send(request), PostStatus::kOk);
    expect_error(wait(world_, *a_->send_cq), 1, WorkStatus::kRemoteAccess);
    expect_error_state(*a_);
    EXPECT_EQ(must(b_->qp->query_state()), QpState::kError);
    must(a_->qp->to_reset());
    must(b_->qp->to_reset());
    connect(*a_, *b_);
  }
  EXPECT_EQ(b_->memory[0], std::byte{0});
}

TEST_F(RcErrors, AWriteBeyondTheKeysEndChangesNothing) {
  make();
  connect(*a_, *b_);
  std::fill(a_->memory.begin(), a_->memory.end(), std::byte{1});
  const auto piece = a_->piece(0, 64);
  auto request = write(1, {&piece, 1});
  request.remote_address = b_->address(b_->memory.size() - 63);
  ASSERT_EQ(a_->qp->post_send(request), PostStatus::kOk);
  expect_error(wait(world_, *a_->send_cq), 1, WorkStatus::kRemoteAccess);
  EXPECT_EQ(b_->memory.back(), std::byte{0});
}

TEST_F(RcErrors, AKeyWithoutTheRightIsARemoteAccessError) {
  make({}, {.access = {.local_write = true}});
  const auto piece = a_->piece(0, 8);
  for (const auto opcode : {SendOpcode::kRdmaWrite, SendOpcode::kRdmaRead, SendOpcode::kFetchAdd}) {
    connect(*a_, *b_);
    auto request = write(1, {&piece, 1});
    request.opcode = opcode;
    ASSERT_EQ(a_->qp->post_send(request), PostStatus::kOk);
    expect_error(wait(world_, *a_->send_cq), 1, WorkStatus::kRemoteAccess);
    must(a_->qp->to_reset());
    must(b_->qp->to_reset());
  }
}

TEST_F(RcErrors, AQueuePairWithoutTheRightIsAnInvalidRequest) {
  make();
  const auto piece = a_->piece(0, 8);
  for (const auto opcode : {SendOpcode::kRdmaWrite, SendOpcode::kRdmaRead, SendOpcode::kFetchAdd}) {
    connect(*a_, *b_, {}, {.read = false, .write = false, .atomic = false});
    auto request = write(1, {&piece, 1});
    request.opcode = opcode;
    ASSERT_EQ(a_->qp->post_send(request), PostStatus::kOk);
    const auto completed = wait(world_, *a_->send_cq);
    ASSERT_EQ(completed.size(), 1u);
    // IBTA table 58 allows both responses here.
    EXPECT_TRUE(completed[0].status == WorkStatus::kRemoteInvalidRequest ||
                completed[0].status == WorkStatus::kRemoteAccess)
        << to_string(completed[0].status);
    must(a_->qp->to_reset());
    must(b_->qp->to_reset());
  }
}

TEST_F(RcErrors, ABadLkeyIsALocalProtectionError) {
  make();
  connect(*a_, *b_);
  auto piece = a_->piece(0, 64);
  piece.lkey ^= 1;
  ASSERT_EQ(a_->qp->post_send(write(1, {&piece, 1})), PostStatus::kOk);
  const auto good = a_->piece(0, 64);
  ASSERT_EQ(a_->qp->post_send(write(2, {&good, 1})), PostStatus::kOk);
  const auto completed = wait(world_, *a_->send_cq, 2);
  ASSERT_EQ(completed.size(), 2u);
  EXPECT_EQ(completed[0].status, WorkStatus::kLocalProtection);
  EXPECT_EQ(completed[0].id, 1u);
  EXPECT_EQ(completed[1].status, WorkStatus::kFlushed);
  EXPECT_EQ(completed[1].id, 2u);
  expect_error_state(*a_);
}

TEST_F(RcErrors, ALocalRangeBeyondTheKeyIsALocalProtectionError) {
  make();
  connect(*a_, *b_);
  const auto piece = a_->piece(a_->memory.size() - 10, 11);
  ASSERT_EQ(a_->qp->post_send(write(1, {&piece, 1})), PostStatus::kOk);
  expect_error(wait(world_, *a_->send_cq), 1, WorkStatus::kLocalProtection);
}

TEST_F(RcErrors, ReadingIntoMemoryWithoutLocalWriteIsALocalProtectionError) {
  make({.access = {.local_write = false}});
  connect(*a_, *b_);
  const auto piece = a_->piece(0, 64);
  auto request = write(1, {&piece, 1});
  request.opcode = SendOpcode::kRdmaRead;
  ASSERT_EQ(a_->qp->post_send(request), PostStatus::kOk);
  expect_error(wait(world_, *a_->send_cq), 1, WorkStatus::kLocalProtection);
}

TEST_F(RcErrors, ASendLargerThanTheReceiveFailsOnBothSides) {
  make();
  connect(*a_, *b_);
  b_->receive(5, 0, 100);
  const auto piece = a_->piece(0, 101);
  ASSERT_EQ(a_->qp->post_send({.id = 1, .pieces = {&piece, 1}}), PostStatus::kOk);
  expect_error(wait(world_, *a_->send_cq), 1, WorkStatus::kRemoteInvalidRequest);
  expect_error(wait(world_, *b_->receive_cq), 5, WorkStatus::kLocalLength);
}

TEST_F(RcErrors, AReceiveWithABadKeyFailsOnBothSides) {
  make();
  connect(*a_, *b_);
  auto piece = b_->piece(0, 100);
  piece.lkey += 0x1000;
  ASSERT_EQ(b_->qp->post_receive({.id = 5, .pieces = {&piece, 1}}), PostStatus::kOk);
  const auto data = a_->piece(0, 100);
  ASSERT_EQ(a_->qp->post_send({.id = 1, .pieces = {&data, 1}}), PostStatus::kOk);
  expect_error(wait(world_, *a_->send_cq), 1, WorkStatus::kRemoteOperation);
  expect_error(wait(world_, *b_->receive_cq), 5, WorkStatus::kLocalProtection);
}

TEST_F(RcErrors, WithoutAReceiveTheSenderTriesAsOftenAsItsRetryCountSays) {
  make();
  // Timer code 20 is 10.24 ms (IBTA table 45). The sender tries once and retries twice.
  connect(*a_, *b_, {.rnr_retry = 2, .min_rnr_timer = 20});
  const auto begin = world_.now();
  const auto piece = a_->piece(0, 8);
  ASSERT_EQ(a_->qp->post_send({.id = 1, .pieces = {&piece, 1}}), PostStatus::kOk);
  expect_error(wait(world_, *a_->send_cq), 1, WorkStatus::kRnrRetryExceeded);
  EXPECT_GE(world_.now() - begin, std::chrono::microseconds(2 * 10240));
  EXPECT_LT(world_.now() - begin, std::chrono::milliseconds(100));
  expect_error_state(*a_);
  EXPECT_EQ(must(b_->qp->query_state()), QpState::kRts) << "nothing happened to the receiver";
}

TEST_F(RcErrors, AReceiveThatComesInTimeEndsTheWaiting) {
  make();
  connect(*a_, *b_, {.rnr_retry = 7, .min_rnr_timer = 20});
  const auto data = pattern(3000, 1);
  std::copy(data.begin(), data.end(), a_->memory.begin());
  const auto piece = a_->piece(0, data.size());
  ASSERT_EQ(a_->qp->post_send({.id = 1, .pieces = {&piece, 1}}), PostStatus::kOk);
  world_.advance(std::chrono::milliseconds(100));
  Completion none;
  EXPECT_EQ(a_->send_cq->poll({&none, 1}), 0u);
  b_->receive(2, 0, 4096);
  expect_success(wait(world_, *a_->send_cq), 1, CompletionOpcode::kSend);
  expect_success(wait(world_, *b_->receive_cq), 2, CompletionOpcode::kReceive);
  EXPECT_EQ(std::memcmp(b_->memory.data(), data.data(), data.size()), 0);
}

TEST_F(RcErrors, APeerThatIsGoneExceedsTheRetries) {
  make();
  connect(*a_, *b_, {.ack_timeout = 10, .retry_count = 3});
  must(b_->qp->destroy());
  const auto piece = a_->piece(0, 8);
  const auto begin = world_.now();
  ASSERT_EQ(a_->qp->post_send(write(1, {&piece, 1})), PostStatus::kOk);
  expect_error(wait(world_, *a_->send_cq), 1, WorkStatus::kTransportRetryExceeded);
  // 4.096 us * 2^10, four times. Real hardware may take up to four times as long each (IBTA
  // 9.7.6.1.3).
  EXPECT_GE(world_.now() - begin, std::chrono::microseconds(4 * 4194));
  expect_error_state(*a_);
}

TEST_F(RcErrors, TheErrorStateFlushesBothQueuesInOrder) {
  make();
  connect(*a_, *b_);
  for (std::uint64_t i = 0; i < 20; ++i) a_->receive(i, 0, 16);
  must(a_->qp->to_error());
  const auto piece = a_->piece(0, 8);
  for (std::uint64_t i = 100; i < 120; ++i) {
    auto request = write(i, {&piece, 1});
    request.signaled = i % 2 == 0;
    ASSERT_EQ(a_->qp->post_send(request), PostStatus::kOk);
  }
  for (std::uint64_t i = 20; i < 25; ++i) a_->receive(i, 0, 16);
  const auto received = wait(world_, *a_->receive_cq, 25);
  ASSERT_EQ(received.size(), 25u);
  for (std::uint64_t i = 0; i < 25; ++i) {
    EXPECT_EQ(received[i].id, i);
    EXPECT_EQ(received[i].status, WorkStatus::kFlushed);
  }
  const auto sent = wait(world_, *a_->send_cq, 20);
  ASSERT_EQ(sent.size(), 20u) << "requests that are not signaled are flushed too";
  for (std::uint64_t i = 0; i < 20; ++i) {
    EXPECT_EQ(sent[i].id, 100 + i);
    EXPECT_EQ(sent[i].status, WorkStatus::kFlushed);
  }
}

TEST_F(RcErrors, RequestsInFlightAreFlushedBehindTheOneThatFailed) {
  make();
  connect(*a_, *b_);
  const auto piece = a_->piece(0, 8);
  std::vector<SendRequest> requests;
  for (std::uint64_t i = 0; i < 30; ++i) requests.push_back(write(i, {&piece, 1}));
  requests[10].rkey ^= 0x100;
  PostStatus status{};
  ASSERT_EQ(a_->qp->post_send(requests, status), requests.size());
  const auto completed = wait(world_, *a_->send_cq, requests.size());
  ASSERT_EQ(completed.size(), requests.size());
  for (std::uint64_t i = 0; i < completed.size(); ++i) {
    EXPECT_EQ(completed[i].id, i);
    const auto expected = i < 10    ? WorkStatus::kSuccess
                          : i == 10 ? WorkStatus::kRemoteAccess
                                    : WorkStatus::kFlushed;
    EXPECT_EQ(to_string(completed[i].status), to_string(expected)) << i;
  }
}

TEST_F(RcErrors, ResetForgetsWhatWasPostedAndTheQueuePairIsAsNew) {
  make();
  connect(*a_, *b_, {.rnr_retry = 7});
  for (int round = 0; round < 3; ++round) {
    const auto piece = a_->piece(0, 8);
    // These wait for receives that never arrive, and for completions that are never polled.
    for (std::uint64_t i = 0; i < 5; ++i) {
      ASSERT_EQ(a_->qp->post_send(write(i, {&piece, 1})), PostStatus::kOk);
    }
    ASSERT_EQ(a_->qp->post_send({.id = 50, .pieces = {&piece, 1}}), PostStatus::kOk);
    world_.advance(std::chrono::milliseconds(1));
    EXPECT_EQ(a_->qp->post_send({.id = 51, .pieces = {&piece, 1}}), PostStatus::kOk);
    must(a_->qp->to_reset());
    must(b_->qp->to_reset());
    EXPECT_EQ(a_->qp->post_send({.id = 52}), PostStatus::kWrongState);
    Completion none;
    EXPECT_EQ(a_->send_cq->poll({&none, 1}), 0u) << "completions from before the reset";

    connect(*a_, *b_, {.rnr_retry = 7});
    ASSERT_EQ(a_->qp->post_send(write(60, {&piece, 1})), PostStatus::kOk);
    expect_success(wait(world_, *a_->send_cq), 60, CompletionOpcode::kRdmaWrite);
  }
  EXPECT_EQ(a_->send_cq->strays(), 0u);
}

TEST_F(RcErrors, PostingRefusesWhatTheQueueWasNotMadeFor) {
  make();
  connect(*a_, *b_);
  const auto piece = a_->piece(0, 8);
  const std::array<Sge, 5> five{piece, piece, piece, piece, piece};
  const std::array<std::byte, 129> large{};
  EXPECT_EQ(a_->qp->post_send({.pieces = five}), PostStatus::kTooManyPieces);
  EXPECT_EQ(a_->qp->post_receive({.pieces = five}), PostStatus::kTooManyPieces);
  EXPECT_EQ(a_->qp->post_send({.inline_data = large}), PostStatus::kInlineTooLong);
  const auto some = std::span(large).first(8);
  EXPECT_EQ(a_->qp->post_send({.opcode = SendOpcode::kRdmaRead, .inline_data = some}),
            PostStatus::kBadRequest);
  const auto four = a_->piece(0, 4);
  EXPECT_EQ(a_->qp->post_send({.opcode = SendOpcode::kFetchAdd, .pieces = {&four, 1}}),
            PostStatus::kBadRequest);
}

TEST_F(RcErrors, AConnectionWithAnImpossibleMtuIsRefused) {
  make();
  const auto done = a_->qp->connect(b_->as_remote(1), {.path_mtu = 1500});
  ASSERT_FALSE(done);
  EXPECT_NE(done.error().message.find("1500"), std::string::npos);
}

TEST_F(RcErrors, TransitionsThatDoNotExistAreRefusedByTheDevice) {
  make();
  EXPECT_FALSE(a_->qp->modify(QpState::kRtr, QpState::kRts, {}));
  must(a_->qp->modify(QpState::kReset, QpState::kInit, {}));
  const auto done = a_->qp->modify(QpState::kRtr, QpState::kRts, {});
  ASSERT_FALSE(done);
  EXPECT_NE(done.error().message.find("RTR2RTS_QP"), std::string::npos) << done.error().message;
}

}  // namespace
}  // namespace softhca::driver::test
