// Failing requests (IBTA 11.6.2) and refused posts, on every device and between devices.
#include <algorithm>
#include <array>

#include "suite.h"

namespace softhca::driver::verbs::test {
namespace {

class Errors : public Verbs {
 protected:
  PostStatus write_to(std::uint64_t address, std::uint32_t rkey,
                      SendOpcode opcode = SendOpcode::kRdmaWrite) {
    const auto piece = a().region.piece(0, 64);
    return a().qp.post_send({.id = 1,
                             .opcode = opcode,
                             .pieces = {&piece, 1},
                             .remote_address = address,
                             .rkey = rkey});
  }
  QpState state(Side& side) { return must(side.qp.query_state()); }
};
INSTANTIATE_TEST_SUITE_P(Devices, Errors, testing::ValuesIn(all_pairs()), name_of);

TEST_P(Errors, AWrongRkeyIsARemoteAccessError) {
  connect_sides();
  ASSERT_EQ(write_to(b().region.address(), b().region.rkey() ^ 0x100), PostStatus::kOk);
  expect_error(wait(a().send_cq), 1, WorkStatus::kRemoteAccess);
  EXPECT_EQ(to_string(state(a())), to_string(QpState::kError));
  EXPECT_EQ(to_string(state(b())), to_string(QpState::kError));
}

TEST_P(Errors, BytesBeyondTheRegionAreARemoteAccessError) {
  connect_sides();
  ASSERT_EQ(write_to(b().region.address(Side::kMemory - 63), b().region.rkey()), PostStatus::kOk);
  expect_error(wait(a().send_cq), 1, WorkStatus::kRemoteAccess);
}

TEST_P(Errors, ARegionWithoutTheRightIsARemoteAccessError) {
  for (const auto opcode : {SendOpcode::kRdmaWrite, SendOpcode::kRdmaRead}) {
    make_sides({.access = {.local_write = true,
                           .remote_read = opcode == SendOpcode::kRdmaWrite,
                           .remote_write = opcode == SendOpcode::kRdmaRead}});
    must(connect(a().qp, b().qp));
    ASSERT_EQ(write_to(b().region.address(), b().region.rkey(), opcode), PostStatus::kOk);
    expect_error(wait(a().send_cq), 1, WorkStatus::kRemoteAccess);
    a_.reset();
    b_.reset();
  }
}

// IBTA 9.7.4.1.3: a key cannot grant what the queue pair does not allow.
TEST_P(Errors, AQueuePairWithoutTheRightRefusesTheRequest) {
  connect_sides(QpType::kRc, {.access = {.read = true, .write = false, .atomic = false}});
  ASSERT_EQ(write_to(b().region.address(), b().region.rkey(), SendOpcode::kRdmaRead),
            PostStatus::kOk);
  expect_success(wait(a().send_cq), 1, CompletionOpcode::kRdmaRead);
  ASSERT_EQ(write_to(b().region.address(), b().region.rkey()), PostStatus::kOk);
  const auto done = wait(a().send_cq);
  ASSERT_EQ(done.size(), 1u);
  EXPECT_TRUE(done[0].status == WorkStatus::kRemoteInvalidRequest ||
              done[0].status == WorkStatus::kRemoteAccess)
      << driver::to_string(done[0].status);
}

TEST_P(Errors, AKeyOfAnotherDomainIsNotTaken) {
  connect_sides();
  auto other = must(b().device.allocate_pd());
  auto region = must(other.register_memory(b().memory, MemoryAccess::all()));
  ASSERT_EQ(write_to(region.address(), region.rkey()), PostStatus::kOk);
  expect_error(wait(a().send_cq), 1, WorkStatus::kRemoteAccess);
}

TEST_P(Errors, ADestroyedRegionIsNotTaken) {
  connect_sides();
  auto region = must(b().pd.register_memory(b().memory, MemoryAccess::all()));
  const auto rkey = region.rkey();
  must(region.destroy());
  // A new region in its place must not get the same key.
  auto next = must(b().pd.register_memory(b().memory, MemoryAccess::all()));
  EXPECT_NE(next.rkey(), rkey);
  ASSERT_EQ(write_to(b().region.address(), rkey), PostStatus::kOk);
  expect_error(wait(a().send_cq), 1, WorkStatus::kRemoteAccess);
}

TEST_P(Errors, AWrongLkeyIsALocalProtectionError) {
  connect_sides();
  b().receive(1, 0, 64);
  auto piece = a().region.piece(0, 64);
  piece.lkey ^= 0x100;
  ASSERT_EQ(a().qp.post_send({.id = 3, .pieces = {&piece, 1}}), PostStatus::kOk);
  expect_error(wait(a().send_cq), 3, WorkStatus::kLocalProtection);
}

TEST_P(Errors, AMessageLongerThanItsReceiveIsAnErrorOnBothSides) {
  connect_sides();
  b().receive(5, 0, 63);
  ASSERT_EQ(a().send(SendOpcode::kSend, 64), PostStatus::kOk);
  expect_error(wait(a().send_cq), 1, WorkStatus::kRemoteInvalidRequest);
  expect_error(wait(b().receive_cq), 5, WorkStatus::kLocalLength);
}

TEST_P(Errors, APeerThatIsSilentForEverIsAnErrorAfterTheRetries) {
  connect_sides(QpType::kRc, {.timeout = 10, .retry_count = 2});
  const auto& lost = lose();
  b().receive(1, 0, 64);
  ASSERT_EQ(a().send(SendOpcode::kSend, 64), PostStatus::kOk);
  expect_error(wait(a().send_cq), 1, WorkStatus::kTransportRetryExceeded);
  EXPECT_EQ(lost.fired, 3u) << "once, and two retries";
}

TEST_P(Errors, ALostPacketIsSentAgain) {
  connect_sides();
  b().receive(1, 0, 64);
  const auto& lost = lose(",nth=1");
  ASSERT_EQ(a().send(SendOpcode::kSend, 64), PostStatus::kOk);
  expect_success(wait(a().send_cq), 1, CompletionOpcode::kSend);
  EXPECT_EQ(lost.fired, 1u);
  EXPECT_EQ(wait(b().receive_cq, 2).size(), 1u) << "and arrives once";
}

TEST_P(Errors, NoReceiveIsAnErrorAfterTheRnrRetries) {
  connect_sides(QpType::kRc, {.rnr_retry = 3});
  ASSERT_EQ(a().send(SendOpcode::kSend, 64), PostStatus::kOk);
  expect_error(wait(a().send_cq), 1, WorkStatus::kRnrRetryExceeded);
}

TEST_P(Errors, AReceiveThatComesLateIsInTimeForARetry) {
  connect_sides();
  ASSERT_EQ(a().send(SendOpcode::kSend, 64), PostStatus::kOk);
  lab().advance(std::chrono::milliseconds(5));
  b().receive(2, 0, 64);
  expect_success(wait(a().send_cq), 1, CompletionOpcode::kSend);
  expect_success(wait(b().receive_cq), 2, CompletionOpcode::kReceive);
}

// IBTA 10.3.1: "flushed in error".
TEST_P(Errors, InErrorEverythingIsFlushed) {
  connect_sides();
  b().receive(1, 0, 64);
  b().receive(2, 0, 64);
  must(b().qp.to_error());
  const auto flushed = wait(b().receive_cq, 2);
  ASSERT_EQ(flushed.size(), 2u);
  EXPECT_EQ(flushed[0].id, 1u);
  EXPECT_EQ(flushed[1].id, 2u);
  b().receive(3, 0, 64);
  ASSERT_EQ(b().send(SendOpcode::kSend, 8, 4), PostStatus::kOk);
  expect_error(wait(b().receive_cq), 3, WorkStatus::kFlushed);
  expect_error(wait(b().send_cq), 4, WorkStatus::kFlushed);
}

TEST_P(Errors, AResetQueuePairCanBeConnectedAgain) {
  connect_sides();
  ASSERT_EQ(write_to(0, 0), PostStatus::kOk);
  ASSERT_EQ(wait(a().send_cq).size(), 1u);
  b().receive(77, 0, 64);
  must(a().qp.to_reset());
  must(b().qp.to_reset());
  while (!wait(b().receive_cq).empty()) {
  }
  must(connect(a().qp, b().qp));
  b().receive(9, 0, 64);
  ASSERT_EQ(a().send(SendOpcode::kSend, 64), PostStatus::kOk);
  expect_success(wait(b().receive_cq), 9, CompletionOpcode::kReceive);
}

// IBTA 10.8.5: an unsignaled request gets a completion if it fails.
TEST_P(Errors, AnUnsignaledRequestThatFailsIsReported) {
  connect_sides();
  const auto piece = a().region.piece(0, 8);
  ASSERT_EQ(a().qp.post_send({.id = 5,
                              .opcode = SendOpcode::kRdmaWrite,
                              .pieces = {&piece, 1},
                              .remote_address = b().region.address(),
                              .rkey = b().region.rkey() + 1,
                              .signaled = false}),
            PostStatus::kOk);
  expect_error(wait(a().send_cq), 5, WorkStatus::kRemoteAccess);
}

TEST_P(Errors, AResetQueuePairLeavesNoCompletions) {
  connect_sides();
  ASSERT_EQ(write_to(0, 0), PostStatus::kOk);
  lab().advance(std::chrono::milliseconds(1));  // it has failed, but was not polled
  must(a().qp.to_reset());
  must(b().qp.to_reset());
  must(connect(a().qp, b().qp));
  b().receive(9, 0, 64);
  ASSERT_EQ(a().send(SendOpcode::kSend, 64, 7), PostStatus::kOk);
  expect_success(wait(a().send_cq), 7, CompletionOpcode::kSend);
}

TEST_P(Errors, AFullReceiveQueueGivesEachItsMessage) {
  constexpr std::size_t kEnough = 200;
  make_sides({.capacity = {.receive_requests = 4, .receive_pieces = 1}});
  must(connect(a().qp, b().qp));
  for (unsigned lap = 0; lap != 3; ++lap) {
    std::size_t posted = 0;
    const auto piece = b().region.piece(0, 64);
    while (posted != kEnough &&
           b().qp.post_receive({.id = posted, .pieces = {&piece, 1}}) == PostStatus::kOk) {
      ++posted;
    }
    ASSERT_GE(posted, 4u);
    ASSERT_LT(posted, kEnough);
    for (std::size_t i = 0; i != posted; ++i) {
      ASSERT_EQ(a().send(SendOpcode::kSend, 64), PostStatus::kOk);
      expect_success(wait(b().receive_cq), i, CompletionOpcode::kReceive);
      ASSERT_EQ(wait(a().send_cq).size(), 1u);
    }
  }
  // Nothing of the earlier work is left in it.
  ASSERT_EQ(a().send(SendOpcode::kSend, 64), PostStatus::kOk);
  lab().advance(std::chrono::milliseconds(1));
  Completion early;
  EXPECT_EQ(b().receive_cq.poll({&early, 1}), 0u);
  b().receive(777, 0, 64);
  expect_success(wait(b().receive_cq), 777, CompletionOpcode::kReceive);
}

// IBTA 10.3.1: posting a send is an immediate error in RESET, INIT and RTR. It leaves nothing
// behind.
TEST_P(Errors, ASendBeforeRtsIsRefusedAndForgotten) {
  make_sides({});
  const auto piece = a().region.piece(0, 8);
  const auto end_a = describe(a().qp), end_b = describe(b().qp);
  const auto post = [&](std::uint64_t id) {
    return a().qp.post_send({.id = id,
                             .opcode = SendOpcode::kRdmaWrite,
                             .pieces = {&piece, 1},
                             .remote_address = b().region.piece(0, 8).address,
                             .rkey = b().region.rkey()});
  };
  EXPECT_EQ(post(1), PostStatus::kWrongState);
  must(connect(b().qp, end_a));
  must(to_init(a().qp));
  EXPECT_EQ(post(2), PostStatus::kWrongState);
  must(to_rtr(a().qp, end_b));
  EXPECT_EQ(post(2), PostStatus::kWrongState);
  auto status = PostStatus::kOk;
  const std::array<SendRequest, 2> list{};
  EXPECT_EQ(a().qp.post_send(list, status), 0u);
  EXPECT_EQ(status, PostStatus::kWrongState);
  must(to_rts(a().qp, end_b));
  EXPECT_EQ(post(3), PostStatus::kOk);
  expect_success(wait(a().send_cq), 3, CompletionOpcode::kRdmaWrite);
}

TEST_P(Errors, RequestsThatDoNotFitAreNotPosted) {
  make_sides({.capacity = {.send_requests = 4,
                           .send_pieces = 2,
                           .inline_size = 16,
                           .receive_requests = 4,
                           .receive_pieces = 1}});
  const auto piece = a().region.piece(0, 8);
  EXPECT_EQ(a().qp.post_send({.pieces = {&piece, 1}}), PostStatus::kWrongState);
  EXPECT_EQ(a().qp.post_receive({.pieces = {&piece, 1}}), PostStatus::kWrongState);
  must(connect(a().qp, b().qp));
  const std::array three{piece, piece, piece};
  EXPECT_EQ(a().qp.post_send({.pieces = three}), PostStatus::kTooManyPieces);
  EXPECT_EQ(a().qp.post_receive({.pieces = three}), PostStatus::kTooManyPieces);
  const std::array<std::byte, 17> bytes{};
  EXPECT_EQ(a().qp.post_send({.inline_data = bytes}), PostStatus::kInlineTooLong);
  EXPECT_EQ(
      a().qp.post_send({.opcode = SendOpcode::kRdmaRead, .inline_data = std::span(bytes).first(8)}),
      PostStatus::kBadRequest);
  const std::vector<ReceiveRequest> many(65, {.pieces = {&piece, 1}});
  auto status = PostStatus::kOk;
  const auto posted = a().qp.post_receive(many, status);
  EXPECT_GE(posted, 4u);
  EXPECT_LT(posted, 65u);
  EXPECT_EQ(status, PostStatus::kQueueFull);
}

// IBTA 10.8.2: a send queue whose completions are never polled.
TEST_P(Errors, AFullSendQueueTakesMoreWhenItsCompletionsArePolled) {
  connect_sides();
  const auto piece = a().region.piece(0, 8);
  const auto post = [&] {
    return a().qp.post_send({.opcode = SendOpcode::kRdmaWrite,
                             .pieces = {&piece, 1},
                             .remote_address = b().region.address(),
                             .rkey = b().region.rkey()});
  };
  std::size_t posted = 0;
  while (posted != 10'000 && post() == PostStatus::kOk) ++posted;
  EXPECT_GE(posted, 64u);
  EXPECT_EQ(post(), PostStatus::kQueueFull);
  EXPECT_EQ(wait(a().send_cq, posted).size(), posted);
  EXPECT_EQ(post(), PostStatus::kOk);
}

}  // namespace
}  // namespace softhca::driver::verbs::test
