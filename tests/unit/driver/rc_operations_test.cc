// Every RC operation with its content checked, at every path MTU and around packet-size boundaries.
#include <cstring>
#include <tuple>

#include "driver/world.h"

namespace softhca::driver::test {
namespace {

class RcOperations : public ::testing::TestWithParam<std::tuple<unsigned, std::size_t>> {
 protected:
  static constexpr std::size_t kMemory = 256 << 10;

  RcOperations() {
    world_.open();
    a_ = std::make_unique<Endpoint>(world_.a(), Endpoint::Options{.memory = kMemory});
    b_ = std::make_unique<Endpoint>(world_.b(), Endpoint::Options{.memory = kMemory});
    connect(*a_, *b_, {.path_mtu = std::get<0>(GetParam())});
  }
  ~RcOperations() override {
    EXPECT_EQ(a_->send_cq->strays() + a_->receive_cq->strays(), 0u);
    EXPECT_EQ(b_->send_cq->strays() + b_->receive_cq->strays(), 0u);
  }

  std::size_t size() const { return std::get<1>(GetParam()); }
  void fill(Endpoint& endpoint, std::size_t offset, std::uint32_t seed) {
    const auto bytes = pattern(size(), seed);
    std::memcpy(endpoint.memory.data() + offset, bytes.data(), bytes.size());
  }
  /// Checks the arrived bytes, and that the surrounding bytes are untouched.
  void expect_arrived(Endpoint& endpoint, std::size_t offset, std::uint32_t seed) {
    const auto bytes = pattern(size(), seed);
    EXPECT_EQ(std::memcmp(endpoint.memory.data() + offset, bytes.data(), bytes.size()), 0);
    EXPECT_EQ(endpoint.memory[offset - 1], std::byte{0});
    EXPECT_EQ(endpoint.memory[offset + size()], std::byte{0});
  }

  World world_;
  std::unique_ptr<Endpoint> a_;
  std::unique_ptr<Endpoint> b_;
};

constexpr std::size_t kFrom = 0x101;  ///< unaligned on purpose
constexpr std::size_t kTo = 0x20003;

TEST_P(RcOperations, RdmaWritePutsTheBytesIntoThePeersMemory) {
  fill(*a_, kFrom, 1);
  const auto piece = a_->piece(kFrom, size());
  ASSERT_EQ(a_->qp->post_send({.id = 7,
                               .opcode = SendOpcode::kRdmaWrite,
                               .pieces = {&piece, 1},
                               .remote_address = b_->address(kTo),
                               .rkey = b_->key->key()}),
            PostStatus::kOk);
  expect_success(wait(world_, *a_->send_cq), 7, CompletionOpcode::kRdmaWrite);
  expect_arrived(*b_, kTo, 1);
  Completion none;
  EXPECT_EQ(b_->receive_cq->poll({&none, 1}), 0u);
}

TEST_P(RcOperations, RdmaWriteWithImmediateAlsoConsumesAReceive) {
  fill(*a_, kFrom, 2);
  b_->receive(70, 0, 16);
  const auto piece = a_->piece(kFrom, size());
  ASSERT_EQ(a_->qp->post_send({.id = 8,
                               .opcode = SendOpcode::kRdmaWriteWithImmediate,
                               .pieces = {&piece, 1},
                               .remote_address = b_->address(kTo),
                               .rkey = b_->key->key(),
                               .immediate = 0xfeedbeef}),
            PostStatus::kOk);
  expect_success(wait(world_, *a_->send_cq), 8, CompletionOpcode::kRdmaWrite);
  const auto received = wait(world_, *b_->receive_cq);
  expect_success(received, 70, CompletionOpcode::kReceiveRdmaWithImmediate);
  EXPECT_EQ(received.at(0).immediate, 0xfeedbeef);
  EXPECT_EQ(received.at(0).byte_count, size());
  expect_arrived(*b_, kTo, 2);
}

TEST_P(RcOperations, RdmaReadFetchesTheBytesOfThePeer) {
  fill(*b_, kFrom, 3);
  const auto piece = a_->piece(kTo, size());
  ASSERT_EQ(a_->qp->post_send({.id = 9,
                               .opcode = SendOpcode::kRdmaRead,
                               .pieces = {&piece, 1},
                               .remote_address = b_->address(kFrom),
                               .rkey = b_->key->key()}),
            PostStatus::kOk);
  const auto completed = wait(world_, *a_->send_cq);
  expect_success(completed, 9, CompletionOpcode::kRdmaRead);
  EXPECT_EQ(completed.at(0).byte_count, size());
  expect_arrived(*a_, kTo, 3);
}

TEST_P(RcOperations, SendFillsAReceive) {
  fill(*a_, kFrom, 4);
  b_->receive(71, kTo, size() + 1);
  const auto piece = a_->piece(kFrom, size());
  ASSERT_EQ(a_->qp->post_send({.id = 10, .pieces = {&piece, 1}}), PostStatus::kOk);
  expect_success(wait(world_, *a_->send_cq), 10, CompletionOpcode::kSend);
  const auto received = wait(world_, *b_->receive_cq);
  expect_success(received, 71, CompletionOpcode::kReceive);
  EXPECT_EQ(received.at(0).byte_count, size());
  EXPECT_EQ(received.at(0).immediate, std::nullopt);
  EXPECT_EQ(received.at(0).qpn, b_->qp->qpn());
  expect_arrived(*b_, kTo, 4);
}

TEST_P(RcOperations, SendWithImmediateBringsFourBytesMore) {
  fill(*a_, kFrom, 5);
  b_->receive(72, kTo, size() + 1);
  const auto piece = a_->piece(kFrom, size());
  ASSERT_EQ(a_->qp->post_send({.id = 11,
                               .opcode = SendOpcode::kSendWithImmediate,
                               .pieces = {&piece, 1},
                               .immediate = 0x01020304}),
            PostStatus::kOk);
  expect_success(wait(world_, *a_->send_cq), 11, CompletionOpcode::kSend);
  const auto received = wait(world_, *b_->receive_cq);
  expect_success(received, 72, CompletionOpcode::kReceive);
  EXPECT_EQ(received.at(0).immediate, 0x01020304u);
  expect_arrived(*b_, kTo, 5);
}

TEST_P(RcOperations, PiecesAreGatheredAndScattered) {
  fill(*a_, kFrom, 6);
  // Three pieces at the sender, two at the receiver, cut at different places.
  const auto third = size() / 3;
  const std::array from{a_->piece(kFrom, third), a_->piece(kFrom + third, third),
                        a_->piece(kFrom + 2 * third, size() - 2 * third)};
  const auto half = size() / 2;
  const std::array to{b_->piece(kTo, half), b_->piece(kTo + half, size() - half)};
  ASSERT_EQ(b_->qp->post_receive({.id = 73, .pieces = to}), PostStatus::kOk);
  ASSERT_EQ(a_->qp->post_send({.id = 12, .pieces = from}), PostStatus::kOk);
  expect_success(wait(world_, *a_->send_cq), 12, CompletionOpcode::kSend);
  expect_success(wait(world_, *b_->receive_cq), 73, CompletionOpcode::kReceive);
  expect_arrived(*b_, kTo, 6);
}

TEST_P(RcOperations, BothDirectionsAtOnce) {
  fill(*a_, kFrom, 7);
  fill(*b_, kFrom, 8);
  for (auto* side : {a_.get(), b_.get()}) {
    auto* other = side == a_.get() ? b_.get() : a_.get();
    const auto piece = side->piece(kFrom, size());
    ASSERT_EQ(side->qp->post_send({.id = 13,
                                   .opcode = SendOpcode::kRdmaWrite,
                                   .pieces = {&piece, 1},
                                   .remote_address = other->address(kTo),
                                   .rkey = other->key->key()}),
              PostStatus::kOk);
  }
  expect_success(wait(world_, *a_->send_cq), 13, CompletionOpcode::kRdmaWrite);
  expect_success(wait(world_, *b_->send_cq), 13, CompletionOpcode::kRdmaWrite);
  expect_arrived(*b_, kTo, 7);
  expect_arrived(*a_, kTo, 8);
}

std::string name_of(const ::testing::TestParamInfo<RcOperations::ParamType>& info) {
  return "Mtu" + std::to_string(std::get<0>(info.param)) + "Size" +
         std::to_string(std::get<1>(info.param));
}

INSTANTIATE_TEST_SUITE_P(Mtus, RcOperations,
                         ::testing::Combine(::testing::Values(256, 512, 1024, 2048, 4096),
                                            ::testing::Values(1, 3, 256, 4095, 4096, 4097, 65536,
                                                              100001)),
                         name_of);

class RcDetails : public ::testing::Test {
 protected:
  RcDetails() {
    world_.open();
    a_ = std::make_unique<Endpoint>(world_.a());
    b_ = std::make_unique<Endpoint>(world_.b());
  }

  World world_;
  std::unique_ptr<Endpoint> a_;
  std::unique_ptr<Endpoint> b_;
};

TEST_F(RcDetails, InlineDataMayChangeAfterPosting) {
  connect(*a_, *b_);
  for (const std::size_t size : {1u, 11u, 12u, 13u, 28u, 60u, 128u}) {
    auto data = pattern(size, static_cast<std::uint32_t>(size));
    const auto sent = data;
    ASSERT_EQ(a_->qp->post_send({.id = size,
                                 .opcode = SendOpcode::kRdmaWrite,
                                 .inline_data = data,
                                 .remote_address = b_->address(),
                                 .rkey = b_->key->key()}),
              PostStatus::kOk);
    std::fill(data.begin(), data.end(), std::byte{0xee});
    expect_success(wait(world_, *a_->send_cq), size, CompletionOpcode::kRdmaWrite);
    EXPECT_EQ(std::memcmp(b_->memory.data(), sent.data(), size), 0) << size;
  }
}

TEST_F(RcDetails, InlineSendsOfAllSizesWrapAroundTheRing) {
  connect(*a_, *b_);
  for (std::size_t i = 0; i < 400; ++i) {
    const auto size = i % 128 + 1;
    const auto data = pattern(size, static_cast<std::uint32_t>(i));
    b_->receive(i, 1000, 128);
    ASSERT_EQ(a_->qp->post_send({.id = i, .inline_data = data}), PostStatus::kOk);
    expect_success(wait(world_, *a_->send_cq), i, CompletionOpcode::kSend);
    const auto received = wait(world_, *b_->receive_cq);
    expect_success(received, i, CompletionOpcode::kReceive);
    ASSERT_EQ(received.at(0).byte_count, size);
    ASSERT_EQ(std::memcmp(b_->memory.data() + 1000, data.data(), size), 0) << i;
  }
}

TEST_F(RcDetails, EmptyMessagesCarryNothingButComplete) {
  connect(*a_, *b_);
  b_->receive(1, 0, 16);
  ASSERT_EQ(a_->qp->post_send({.id = 2, .opcode = SendOpcode::kSendWithImmediate, .immediate = 5}),
            PostStatus::kOk);
  expect_success(wait(world_, *a_->send_cq), 2, CompletionOpcode::kSend);
  const auto received = wait(world_, *b_->receive_cq);
  expect_success(received, 1, CompletionOpcode::kReceive);
  EXPECT_EQ(received.at(0).byte_count, 0u);
  EXPECT_EQ(received.at(0).immediate, 5u);

  ASSERT_EQ(a_->qp->post_send({.id = 3, .opcode = SendOpcode::kRdmaWrite}), PostStatus::kOk);
  expect_success(wait(world_, *a_->send_cq), 3, CompletionOpcode::kRdmaWrite);
  ASSERT_EQ(a_->qp->post_send({.id = 4, .opcode = SendOpcode::kRdmaRead}), PostStatus::kOk);
  expect_success(wait(world_, *a_->send_cq), 4, CompletionOpcode::kRdmaRead);
}

TEST_F(RcDetails, FetchAndAddReturnsTheOldValue) {
  connect(*a_, *b_);
  const std::uint64_t before = 0x1122334455667788;
  std::memcpy(b_->memory.data() + 64, &before, 8);
  const auto piece = a_->piece(8, 8);
  ASSERT_EQ(a_->qp->post_send({.id = 1,
                               .opcode = SendOpcode::kFetchAdd,
                               .pieces = {&piece, 1},
                               .remote_address = b_->address(64),
                               .rkey = b_->key->key(),
                               .swap_or_add = 0x100000001}),
            PostStatus::kOk);
  const auto completed = wait(world_, *a_->send_cq);
  expect_success(completed, 1, CompletionOpcode::kFetchAdd);
  std::uint64_t old = 0;
  std::uint64_t after = 0;
  std::memcpy(&old, a_->memory.data() + 8, 8);
  std::memcpy(&after, b_->memory.data() + 64, 8);
  EXPECT_EQ(old, before);
  EXPECT_EQ(after, before + 0x100000001);
}

TEST_F(RcDetails, CompareAndSwapSwapsOnlyIfEqual) {
  connect(*a_, *b_);
  std::uint64_t value = 42;
  std::memcpy(b_->memory.data() + 64, &value, 8);
  const auto piece = a_->piece(8, 8);
  SendRequest request{.id = 1,
                      .opcode = SendOpcode::kCompareSwap,
                      .pieces = {&piece, 1},
                      .remote_address = b_->address(64),
                      .rkey = b_->key->key(),
                      .compare = 41,
                      .swap_or_add = 100};
  for (const auto& [compare, expected] : {std::pair{41, 42}, std::pair{42, 100}}) {
    request.compare = static_cast<std::uint64_t>(compare);
    ASSERT_EQ(a_->qp->post_send(request), PostStatus::kOk);
    expect_success(wait(world_, *a_->send_cq), 1, CompletionOpcode::kCompareSwap);
    std::memcpy(&value, a_->memory.data() + 8, 8);
    EXPECT_EQ(value, 42u) << "the old value, swapped or not";
    std::memcpy(&value, b_->memory.data() + 64, 8);
    EXPECT_EQ(value, static_cast<std::uint64_t>(expected));
  }
}

TEST_F(RcDetails, UnsignaledRequestsGiveNoCompletionButFreeTheirPlace) {
  connect(*a_, *b_);
  const auto piece = a_->piece(0, 8);
  Completion none;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const bool signaled = i % 10 == 9;
    ASSERT_EQ(a_->qp->post_send({.id = i,
                                 .opcode = SendOpcode::kRdmaWrite,
                                 .pieces = {&piece, 1},
                                 .remote_address = b_->address(),
                                 .rkey = b_->key->key(),
                                 .signaled = signaled}),
              PostStatus::kOk);
    if (signaled) {
      expect_success(wait(world_, *a_->send_cq), i, CompletionOpcode::kRdmaWrite);
    } else {
      ASSERT_EQ(a_->send_cq->poll({&none, 1}), 0u);
    }
  }
}

TEST_F(RcDetails, ManyRequestsWithOneDoorbellCompleteInOrder) {
  connect(*a_, *b_);
  const auto piece = a_->piece(0, 5000);
  std::vector<SendRequest> requests(40);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    requests[i] = {.id = i,
                   .opcode = i % 3 == 0 ? SendOpcode::kRdmaRead : SendOpcode::kRdmaWrite,
                   .pieces = {&piece, 1},
                   .remote_address = b_->address(),
                   .rkey = b_->key->key()};
  }
  PostStatus status{};
  ASSERT_EQ(a_->qp->post_send(requests, status), requests.size());
  const auto completed = wait(world_, *a_->send_cq, requests.size());
  ASSERT_EQ(completed.size(), requests.size());
  for (std::size_t i = 0; i < completed.size(); ++i) EXPECT_EQ(completed[i].id, i);
}

TEST_F(RcDetails, AFullQueueSaysSoAndTakesMoreAfterPolling) {
  connect(*a_, *b_);
  const auto piece = a_->piece(0, 8);
  const SendRequest request{.opcode = SendOpcode::kRdmaWrite,
                            .pieces = {&piece, 1},
                            .remote_address = b_->address(),
                            .rkey = b_->key->key()};
  std::size_t posted = 0;
  while (a_->qp->post_send(request) == PostStatus::kOk) ++posted;
  EXPECT_GE(posted, 64u);
  EXPECT_EQ(a_->qp->post_send(request), PostStatus::kQueueFull);
  EXPECT_EQ(wait(world_, *a_->send_cq, posted).size(), posted);
  EXPECT_EQ(a_->qp->post_send(request), PostStatus::kOk);
}

TEST_F(RcDetails, ADeviceTalksToItself) {
  Endpoint other(world_.a());
  connect(*a_, other);
  const auto data = pattern(64, 9);
  ASSERT_EQ(a_->qp->post_send({.id = 1,
                               .opcode = SendOpcode::kRdmaWrite,
                               .inline_data = data,
                               .remote_address = other.address(),
                               .rkey = other.key->key()}),
            PostStatus::kOk);
  expect_success(wait(world_, *a_->send_cq), 1, CompletionOpcode::kRdmaWrite);
  EXPECT_EQ(std::memcmp(other.memory.data(), data.data(), data.size()), 0);
}

TEST_F(RcDetails, TheKeyOfAllDmaMemoryNamesBusAddresses) {
  connect(*a_, *b_);
  const auto all = must(connectx::MemoryKey::all_dma_memory(*a_->pd));
  const auto buffer = must(DmaBuffer::allocate(*world_.a().host, 4096));
  const auto data = pattern(4096, 10);
  std::copy(data.begin(), data.end(), buffer.bytes().begin());
  const Sge piece{buffer.iova(), 4096, all->key()};
  ASSERT_EQ(a_->qp->post_send({.id = 1,
                               .opcode = SendOpcode::kRdmaWrite,
                               .pieces = {&piece, 1},
                               .remote_address = b_->address(),
                               .rkey = b_->key->key()}),
            PostStatus::kOk);
  expect_success(wait(world_, *a_->send_cq), 1, CompletionOpcode::kRdmaWrite);
  EXPECT_EQ(std::memcmp(b_->memory.data(), data.data(), data.size()), 0);
}

TEST_F(RcDetails, RegisteredMemoryMayBeginInsideOfAPage) {
  connect(*a_, *b_);
  // One page of bytes that spans two pages.
  const auto to_page = -b_->address() % Host::kPageSize;
  const auto target = b_->bytes(to_page + 4000, Host::kPageSize);
  const auto key = must(connectx::MemoryKey::register_memory(
      *b_->pd, target, {.local_write = true, .remote_write = true}));
  const auto data = pattern(target.size(), 3);
  std::copy(data.begin(), data.end(), a_->memory.begin());
  const auto piece = a_->piece(0, data.size());
  ASSERT_EQ(a_->qp->post_send({.id = 1,
                               .opcode = SendOpcode::kRdmaWrite,
                               .pieces = {&piece, 1},
                               .remote_address = b_->address(to_page + 4000),
                               .rkey = key->key()}),
            PostStatus::kOk);
  expect_success(wait(world_, *a_->send_cq), 1, CompletionOpcode::kRdmaWrite);
  EXPECT_TRUE(std::equal(data.begin(), data.end(), target.begin()));
}

TEST_F(RcDetails, LargeRegistrationsUseLargePages) {
  constexpr std::size_t kSize = 5 << 20;
  Endpoint a(world_.a(), {.memory = kSize});
  Endpoint b(world_.b(), {.memory = kSize});
  connect(a, b, {.path_mtu = 4096});
  const auto data = pattern(kSize - 77, 11);
  std::copy(data.begin(), data.end(), a.memory.begin() + 13);
  const auto piece = a.piece(13, data.size());
  ASSERT_EQ(a.qp->post_send({.id = 1,
                             .opcode = SendOpcode::kRdmaWrite,
                             .pieces = {&piece, 1},
                             .remote_address = b.address(5),
                             .rkey = b.key->key()}),
            PostStatus::kOk);
  expect_success(wait(world_, *a.send_cq), 1, CompletionOpcode::kRdmaWrite);
  EXPECT_EQ(std::memcmp(b.memory.data() + 5, data.data(), data.size()), 0);
}

}  // namespace
}  // namespace softhca::driver::test
