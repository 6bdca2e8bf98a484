// Operations of a connected queue pair (IBTA 11.4.1.1), on every device and between devices.
#include <algorithm>
#include <array>
#include <cstring>

#include "suite.h"

namespace softhca::driver::verbs::test {
namespace {

class Operations : public Verbs {};
INSTANTIATE_TEST_SUITE_P(Devices, Operations, testing::ValuesIn(all_pairs()), name_of);

TEST_P(Operations, SendFillsTheReceiveOfThePeer) {
  connect_sides();
  for (const std::size_t size : {1u, 2u, 1024u, 1025u, 100'000u}) {
    const auto bytes = pattern(size, 1);
    std::ranges::copy(bytes, a().memory.begin());
    b().receive(7, 0, size);
    ASSERT_EQ(a().send(SendOpcode::kSend, size), PostStatus::kOk);
    expect_success(wait(a().send_cq), 1, CompletionOpcode::kSend);
    const auto received = wait(b().receive_cq);
    expect_success(received, 7, CompletionOpcode::kReceive);
    EXPECT_EQ(received[0].byte_count, size);
    EXPECT_FALSE(received[0].immediate);
    EXPECT_TRUE(std::ranges::equal(b().bytes(0, size), bytes));
  }
}

TEST_P(Operations, RdmaWritePutsBytesWhereThePeerDoesNotLook) {
  connect_sides();
  const auto bytes = pattern(5000, 2);
  std::ranges::copy(bytes, a().memory.begin());
  const auto piece = a().region.piece(0, bytes.size());
  ASSERT_EQ(a().qp.post_send({.id = 3,
                              .opcode = SendOpcode::kRdmaWrite,
                              .pieces = {&piece, 1},
                              .remote_address = b().region.address(11),
                              .rkey = b().region.rkey()}),
            PostStatus::kOk);
  expect_success(wait(a().send_cq), 3, CompletionOpcode::kRdmaWrite);
  EXPECT_TRUE(std::ranges::equal(b().bytes(11, bytes.size()), bytes));
  EXPECT_EQ(b().memory[10], std::byte{}) << "the byte before";
  EXPECT_EQ(b().memory[11 + bytes.size()], std::byte{}) << "the byte behind";
}

TEST_P(Operations, RdmaReadFetchesThePeersBytes) {
  connect_sides();
  const auto bytes = pattern(70'000, 3);
  std::ranges::copy(bytes, b().memory.begin() + 5);
  const auto piece = a().region.piece(100, bytes.size());
  ASSERT_EQ(a().qp.post_send({.id = 4,
                              .opcode = SendOpcode::kRdmaRead,
                              .pieces = {&piece, 1},
                              .remote_address = b().region.address(5),
                              .rkey = b().region.rkey()}),
            PostStatus::kOk);
  const auto done = wait(a().send_cq);
  expect_success(done, 4, CompletionOpcode::kRdmaRead);
  EXPECT_EQ(done[0].byte_count, bytes.size());
  EXPECT_TRUE(std::ranges::equal(a().bytes(100, bytes.size()), bytes));
}

TEST_P(Operations, ImmediateDataArriveWithASendAndWithAWrite) {
  connect_sides();
  b().receive(1, 0, 64);
  b().receive(2, 64, 64);
  const auto piece = a().region.piece(0, 8);
  ASSERT_EQ(a().qp.post_send({.opcode = SendOpcode::kSendWithImmediate,
                              .pieces = {&piece, 1},
                              .immediate = 0xdeadbeef}),
            PostStatus::kOk);
  ASSERT_EQ(a().qp.post_send({.opcode = SendOpcode::kRdmaWriteWithImmediate,
                              .pieces = {&piece, 1},
                              .remote_address = b().region.address(1000),
                              .rkey = b().region.rkey(),
                              .immediate = 7}),
            PostStatus::kOk);
  const auto received = wait(b().receive_cq, 2);
  ASSERT_EQ(received.size(), 2u);
  EXPECT_EQ(received[0].opcode, CompletionOpcode::kReceive);
  EXPECT_EQ(received[0].immediate, 0xdeadbeefu);
  EXPECT_EQ(received[1].opcode, CompletionOpcode::kReceiveRdmaWithImmediate);
  EXPECT_EQ(received[1].immediate, 7u);
  EXPECT_EQ(received[1].id, 2u) << "the write has consumed the second receive";
}

TEST_P(Operations, InlineDataAreReadWhilePosting) {
  connect_sides();
  auto bytes = pattern(60, 4);
  b().receive(1, 0, 64);
  ASSERT_EQ(a().qp.post_send({.inline_data = bytes}), PostStatus::kOk);
  const auto sent = bytes;
  std::ranges::fill(bytes, std::byte{});
  ASSERT_EQ(wait(b().receive_cq).size(), 1u);
  EXPECT_TRUE(std::ranges::equal(b().bytes(0, 60), sent));
}

TEST_P(Operations, PiecesAreGatheredAndScattered) {
  connect_sides();
  const auto bytes = pattern(300, 5);
  std::ranges::copy(bytes, a().memory.begin());
  const std::array from{a().region.piece(0, 100), a().region.piece(100, 1),
                        a().region.piece(101, 0), a().region.piece(101, 199)};
  const std::array to{b().region.piece(5000, 150), b().region.piece(1, 7),
                      b().region.piece(9000, 143)};
  ASSERT_EQ(b().qp.post_receive({.id = 9, .pieces = to}), PostStatus::kOk);
  ASSERT_EQ(a().qp.post_send({.pieces = from}), PostStatus::kOk);
  expect_success(wait(b().receive_cq), 9, CompletionOpcode::kReceive);
  EXPECT_TRUE(std::ranges::equal(b().bytes(5000, 150), std::span(bytes).first(150)));
  EXPECT_TRUE(std::ranges::equal(b().bytes(1, 7), std::span(bytes).subspan(150, 7)));
  EXPECT_TRUE(std::ranges::equal(b().bytes(9000, 143), std::span(bytes).subspan(157)));
}

TEST_P(Operations, AMessageMayHaveNoBytes) {
  connect_sides();
  b().receive(3, 0, 64);
  ASSERT_EQ(a().qp.post_send({.id = 2}), PostStatus::kOk);
  expect_success(wait(a().send_cq), 2, CompletionOpcode::kSend);
  const auto received = wait(b().receive_cq);
  expect_success(received, 3, CompletionOpcode::kReceive);
  EXPECT_EQ(received[0].byte_count, 0u);
}

TEST_P(Operations, FetchAndAddReturnsWhatWasThere) {
  NEEDS(kAtomics);
  connect_sides();
  std::uint64_t there = 40;
  std::memcpy(b().memory.data(), &there, sizeof(there));
  const auto piece = a().region.piece(64, 8);
  ASSERT_EQ(a().qp.post_send({.id = 5,
                              .opcode = SendOpcode::kFetchAdd,
                              .pieces = {&piece, 1},
                              .remote_address = b().region.address(),
                              .rkey = b().region.rkey(),
                              .swap_or_add = 2}),
            PostStatus::kOk);
  expect_success(wait(a().send_cq), 5, CompletionOpcode::kFetchAdd);
  std::uint64_t before = 0;
  std::memcpy(&before, a().memory.data() + 64, sizeof(before));
  std::memcpy(&there, b().memory.data(), sizeof(there));
  EXPECT_EQ(before, 40u);
  EXPECT_EQ(there, 42u);
}

TEST_P(Operations, CompareAndSwapSwapsOnlyWhatItExpects) {
  NEEDS(kAtomics);
  connect_sides();
  std::uint64_t there = 1;
  std::memcpy(b().memory.data(), &there, sizeof(there));
  const auto swap = [&](std::uint64_t compare, std::uint64_t with) {
    const auto piece = a().region.piece(64, 8);
    EXPECT_EQ(a().qp.post_send({.opcode = SendOpcode::kCompareSwap,
                                .pieces = {&piece, 1},
                                .remote_address = b().region.address(),
                                .rkey = b().region.rkey(),
                                .compare = compare,
                                .swap_or_add = with}),
              PostStatus::kOk);
    EXPECT_EQ(wait(a().send_cq).size(), 1u);
    std::uint64_t before = 0;
    std::memcpy(&before, a().memory.data() + 64, sizeof(before));
    std::memcpy(&there, b().memory.data(), sizeof(there));
    return before;
  };
  EXPECT_EQ(swap(1, 100), 1u);
  EXPECT_EQ(there, 100u);
  EXPECT_EQ(swap(1, 200), 100u);
  EXPECT_EQ(there, 100u) << "it was not 1 any more";
}

// IBTA 10.8.3.3: the fence indicator.
TEST_P(Operations, AFencedSendWaitsForTheReadBefore) {
  connect_sides();
  const auto bytes = pattern(4096, 6);
  std::ranges::copy(bytes, b().memory.begin());
  b().receive(1, 8192, 4096);
  const auto piece = a().region.piece(0, 4096);
  const std::array requests{
      SendRequest{.opcode = SendOpcode::kRdmaRead,
                  .pieces = {&piece, 1},
                  .remote_address = b().region.address(),
                  .rkey = b().region.rkey()},
      SendRequest{.opcode = SendOpcode::kSend, .pieces = {&piece, 1}, .fence = true}};
  auto status = PostStatus::kOk;
  ASSERT_EQ(a().qp.post_send(requests, status), 2u);
  ASSERT_EQ(wait(b().receive_cq).size(), 1u);
  EXPECT_TRUE(std::ranges::equal(b().bytes(8192, 4096), bytes)) << "what was read was sent";
}

// IBTA 10.8.5: "unsignaled completions".
TEST_P(Operations, OnlyWhatIsSignaledCompletes) {
  connect_sides();
  const auto piece = a().region.piece(0, 16);
  for (std::uint64_t id = 0; id != 30; ++id) {
    ASSERT_EQ(a().qp.post_send({.id = id,
                                .opcode = SendOpcode::kRdmaWrite,
                                .pieces = {&piece, 1},
                                .remote_address = b().region.address(),
                                .rkey = b().region.rkey(),
                                .signaled = id % 10 == 9}),
              PostStatus::kOk);
  }
  const auto done = wait(a().send_cq, 30);
  ASSERT_EQ(done.size(), 3u);
  EXPECT_EQ(done[0].id, 9u);
  EXPECT_EQ(done[2].id, 29u);
}

TEST_P(Operations, EveryPathMtuCarriesTheSameBytes) {
  for (const unsigned mtu : {256u, 512u, 1024u, 2048u, 4096u}) {
    connect_sides(QpType::kRc, {.path_mtu = mtu});
    const auto bytes = pattern(10'000, mtu);
    std::ranges::copy(bytes, a().memory.begin());
    b().receive(1, 0, bytes.size());
    ASSERT_EQ(a().send(SendOpcode::kSend, bytes.size()), PostStatus::kOk);
    expect_success(wait(b().receive_cq), 1, CompletionOpcode::kReceive);
    EXPECT_TRUE(std::ranges::equal(b().bytes(0, bytes.size()), bytes)) << mtu;
    a_.reset();
    b_.reset();
  }
}

TEST_P(Operations, PingPongOfSendsGoesBothWays) {
  connect_sides();
  for (std::uint64_t round = 0; round != 100; ++round) {
    auto& from = round % 2 == 0 ? a() : b();
    auto& to = round % 2 == 0 ? b() : a();
    to.receive(round, 4096, 64);
    std::memcpy(from.memory.data(), &round, sizeof(round));
    ASSERT_EQ(from.send(SendOpcode::kSend, 64, round), PostStatus::kOk);
    expect_success(wait(to.receive_cq), round, CompletionOpcode::kReceive);
    expect_success(wait(from.send_cq), round, CompletionOpcode::kSend);
    EXPECT_EQ(std::memcmp(to.memory.data() + 4096, &round, sizeof(round)), 0);
  }
}

}  // namespace
}  // namespace softhca::driver::verbs::test
