// UC and UD (IBTA 9.8.2, 9.8.3), and shared receive queues (10.2.9), on every device and between
// devices.
#include <algorithm>
#include <cstring>

#include "suite.h"

namespace softhca::driver::verbs::test {
namespace {

class Uc : public Verbs {};
INSTANTIATE_TEST_SUITE_P(Devices, Uc, testing::ValuesIn(all_pairs()), name_of);

TEST_P(Uc, SendsAndWritesArrive) {
  NEEDS(kUc);
  connect_sides(QpType::kUc);
  const auto bytes = pattern(3000, 1);
  std::ranges::copy(bytes, a().memory.begin());
  b().receive(7, 0, 3000);
  ASSERT_EQ(a().send(SendOpcode::kSend, 3000, 1), PostStatus::kOk);
  expect_success(wait(a().send_cq), 1, CompletionOpcode::kSend);
  expect_success(wait(b().receive_cq), 7, CompletionOpcode::kReceive);
  EXPECT_TRUE(std::ranges::equal(b().bytes(0, 3000), bytes));
  const auto piece = a().region.piece(0, 3000);
  b().receive(8, 0, 0);
  ASSERT_EQ(a().qp.post_send({.id = 2,
                              .opcode = SendOpcode::kRdmaWriteWithImmediate,
                              .pieces = {&piece, 1},
                              .remote_address = b().region.address(5000),
                              .rkey = b().region.rkey(),
                              .immediate = 3}),
            PostStatus::kOk);
  expect_success(wait(b().receive_cq), 8, CompletionOpcode::kReceiveRdmaWithImmediate);
  EXPECT_TRUE(std::ranges::equal(b().bytes(5000, 3000), bytes));
}

// IBTA 9.8.2: "not acknowledged": the sender does not learn that a packet was lost.
TEST_P(Uc, ALostMessageIsNotSentAgain) {
  NEEDS(kUc);
  connect_sides(QpType::kUc);
  b().receive(1, 0, 64);
  const auto& lost = lose(",nth=1");
  ASSERT_EQ(a().send(SendOpcode::kSend, 64, 1), PostStatus::kOk);
  expect_success(wait(a().send_cq), 1, CompletionOpcode::kSend);
  EXPECT_EQ(lost.fired, 1u);
  EXPECT_TRUE(wait(b().receive_cq).empty());
}

// IBTA 9.4 Table 36: UC has no RDMA READ.
TEST_P(Uc, AReadEndsInALocalError) {
  NEEDS(kUc);
  connect_sides(QpType::kUc);
  const auto piece = a().region.piece(0, 8);
  ASSERT_EQ(a().qp.post_send({.id = 4,
                              .opcode = SendOpcode::kRdmaRead,
                              .pieces = {&piece, 1},
                              .remote_address = b().region.address(),
                              .rkey = b().region.rkey()}),
            PostStatus::kOk);
  expect_error(wait(a().send_cq), 4, WorkStatus::kLocalQpOperation);
}

TEST_P(Uc, AServiceThatADeviceLacksIsRefusedInWords) {
  for (std::size_t i = 0; i != lab().size(); ++i) {
    auto& device = lab().device(i);
    auto pd = must(device.allocate_pd());
    auto cq = must(device.create_cq());
    const auto qp = pd.create_qp({.type = QpType::kUc, .send_cq = cq, .receive_cq = cq});
    const auto* const limitation = device.attributes().lacks(Feature::kUc);
    EXPECT_EQ(qp.has_value(), limitation == nullptr);
    if (limitation != nullptr) {
      EXPECT_NE(qp.error().message.find(limitation->section), std::string::npos)
          << qp.error().message;
    }
  }
}

class Ud : public Verbs {
 protected:
  static constexpr std::uint32_t kQkey = 0x1234;
  void SetUp() override {
    make_sides({.type = QpType::kUd});
    must(activate(a().qp, {.qkey = kQkey}));
    must(activate(b().qp, {.qkey = kQkey}));
    to_b_ = must(a().pd.make_address(path_to(describe(b().qp))));
  }
  PostStatus send(std::size_t length, std::uint32_t qkey = kQkey,
                  SendOpcode opcode = SendOpcode::kSend) {
    const auto piece = a().region.piece(0, length);
    return a().qp.post_send({.id = 1,
                             .opcode = opcode,
                             .pieces = {&piece, 1},
                             .immediate = 99,
                             .address = &to_b_,
                             .remote_qpn = b().qp.number(),
                             .remote_qkey = qkey});
  }
  AddressForm to_b_;
};
INSTANTIATE_TEST_SUITE_P(Devices, Ud, testing::ValuesIn(all_pairs()), name_of);

// IBTA 11.4.1.2: the first 40 bytes of the receive are the GRH.
TEST_P(Ud, ADatagramArrivesBehindItsHeader) {
  const auto header = b().device.attributes().datagram_header;
  const auto bytes = pattern(1024, 1);
  std::ranges::copy(bytes, a().memory.begin());
  b().receive(7, 0, header + 1024);
  ASSERT_EQ(send(1024), PostStatus::kOk);
  expect_success(wait(a().send_cq), 1, CompletionOpcode::kSend);
  const auto received = wait(b().receive_cq);
  expect_success(received, 7, CompletionOpcode::kReceive);
  EXPECT_EQ(received[0].byte_count, header + 1024);
  EXPECT_EQ(received[0].source_qpn, a().qp.number());
  EXPECT_TRUE(std::ranges::equal(b().bytes(header, 1024), bytes));
}

TEST_P(Ud, ImmediateDataArrive) {
  b().receive(7, 0, 100);
  ASSERT_EQ(send(10, kQkey, SendOpcode::kSendWithImmediate), PostStatus::kOk);
  const auto received = wait(b().receive_cq);
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].immediate, 99u);
}

// IBTA 10.2.5: a datagram with another Q_Key is dropped.
TEST_P(Ud, AnotherQkeyIsNotTaken) {
  b().receive(7, 0, 100);
  ASSERT_EQ(send(10, kQkey + 1), PostStatus::kOk);
  expect_success(wait(a().send_cq), 1, CompletionOpcode::kSend);
  EXPECT_TRUE(wait(b().receive_cq).empty());
  ASSERT_EQ(send(10), PostStatus::kOk);
  expect_success(wait(b().receive_cq), 7, CompletionOpcode::kReceive);
}

TEST_P(Ud, TheAnswerGoesToTheSourceOfTheDatagram) {
  a().receive(1, 4096, 100);
  b().receive(2, 4096, 100);
  ASSERT_EQ(send(10), PostStatus::kOk);
  const auto received = wait(b().receive_cq);
  ASSERT_EQ(received.size(), 1u);
  const auto back = must(b().pd.make_address(path_to(describe(a().qp))));
  ASSERT_EQ(b().qp.post_send(
                {.address = &back, .remote_qpn = received[0].source_qpn, .remote_qkey = kQkey}),
            PostStatus::kOk);
  expect_success(wait(a().receive_cq), 1, CompletionOpcode::kReceive);
}

TEST_P(Ud, RequestsOtherThanAddressedSendsAreNotPosted) {
  EXPECT_EQ(send(10, kQkey, SendOpcode::kRdmaWrite), PostStatus::kBadRequest);
  EXPECT_EQ(a().qp.post_send({}), PostStatus::kBadRequest);
}

TEST_P(Ud, AGroupReceivesWhatIsSentToIt) {
  NEEDS(kMulticast);
  Gid group = Gid::from_ipv4(224, 1, 2, 3);
  Path path{.gid = group};
  path.mac.bytes = {std::byte{0x01}, std::byte{0x00}, std::byte{0x5e},
                    std::byte{0x01}, std::byte{0x02}, std::byte{0x03}};
  const auto to_all = must(a().pd.make_address(path));
  const auto send_to_group = [&] {
    return a().qp.post_send({.address = &to_all, .remote_qpn = 0xffffff, .remote_qkey = kQkey});
  };
  must(b().qp.attach(group));
  b().receive(1, 0, 100);
  b().receive(2, 0, 100);
  ASSERT_EQ(send_to_group(), PostStatus::kOk);
  expect_success(wait(b().receive_cq), 1, CompletionOpcode::kReceive);
  must(b().qp.detach(group));
  ASSERT_EQ(send_to_group(), PostStatus::kOk);
  EXPECT_TRUE(wait(b().receive_cq).empty()) << "it has left the group";
}

class Srq : public Verbs {
 protected:
  void SetUp() override {
    NEEDS(kSharedReceiveQueues);
    make_sides({.with_srq = true});
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, Srq, testing::ValuesIn(all_pairs()), name_of);

TEST_P(Srq, TwoQueuePairsTakeFromOneQueue) {
  NEEDS(kSharedReceiveQueues);
  auto second_a = must(a().pd.create_qp({.send_cq = a().send_cq, .receive_cq = a().receive_cq}));
  auto second_b = must(
      b().pd.create_qp({.send_cq = b().send_cq, .receive_cq = b().receive_cq, .srq = &*b().srq}));
  must(connect(a().qp, b().qp));
  must(connect(second_a, second_b));
  for (unsigned round = 0; round != 200; ++round) {  // the list wraps around
    const auto bytes = pattern(64, round);
    std::ranges::copy(bytes, a().memory.begin());
    b().receive(round, 64 * (round % 8), 64);
    auto& sender = round % 3 == 0 ? second_a : a().qp;
    const auto piece = a().region.piece(0, 64);
    ASSERT_EQ(sender.post_send({.pieces = {&piece, 1}}), PostStatus::kOk);
    const auto received = wait(b().receive_cq);
    expect_success(received, round, CompletionOpcode::kReceive);
    EXPECT_EQ(received[0].qpn, (round % 3 == 0 ? second_b : b().qp).number());
    EXPECT_TRUE(std::ranges::equal(b().bytes(64 * (round % 8), 64), bytes));
    ASSERT_EQ(wait(a().send_cq).size(), 1u);
  }
}

TEST_P(Srq, IsFullAfterItsRequestsAndFreeAgainWhenTheyComplete) {
  NEEDS(kSharedReceiveQueues);
  must(connect(a().qp, b().qp));
  auto small = must(b().pd.create_srq(3, 1));
  const auto piece = b().region.piece(0, 64);
  for (int i = 0; i != 3; ++i) ASSERT_EQ(small.post({.pieces = {&piece, 1}}), PostStatus::kOk);
  EXPECT_EQ(small.post({.pieces = {&piece, 1}}), PostStatus::kQueueFull);
  EXPECT_EQ(b().qp.post_receive({.pieces = {&piece, 1}}), PostStatus::kBadRequest)
      << "a queue pair with an SRQ has no receive queue";
}

// IBTA 11.6.3.2: the SRQ limit event.
TEST_P(Srq, ReportsOnceThatItRunsEmpty) {
  NEEDS(kReceiveLimit);
  must(connect(a().qp, b().qp));
  for (unsigned i = 0; i != 4; ++i) b().receive(i, 0, 64);
  must(b().srq->arm_limit(3));
  for (unsigned i = 0; i != 3; ++i) {
    ASSERT_EQ(a().send(SendOpcode::kSend, 8), PostStatus::kOk);
    ASSERT_EQ(wait(b().receive_cq).size(), 1u);
  }
  std::optional<AsyncEvent> event;
  do event = wait_event(b().device);
  while (event && event->type == AsyncEventType::kCommunicationEstablished);
  ASSERT_TRUE(event);
  EXPECT_EQ(to_string(event->type), to_string(AsyncEventType::kSrqLimitReached));
  EXPECT_EQ(event->number, b().srq->number());
  EXPECT_FALSE(wait_event(b().device)) << "once";
  EXPECT_FALSE(b().srq->arm_limit(100)) << "it has 64";
}

TEST_P(Srq, AWqeThatAResetQueuePairHadTakenIsFreeAgain) {
  NEEDS(kSharedReceiveQueues);
  a_.reset();
  b_.reset();
  make_sides({.capacity = {.receive_requests = 3}, .with_srq = true});
  must(connect(a().qp, b().qp));
  for (unsigned i = 0; i != 3; ++i) b().receive(i, 0, 64);
  ASSERT_EQ(a().send(SendOpcode::kSend, 8), PostStatus::kOk);
  ASSERT_EQ(wait(a().send_cq).size(), 1u);
  must(b().qp.to_reset());  // its completion was not polled, and is removed
  EXPECT_TRUE(wait(b().receive_cq).empty());
  const auto piece = b().region.piece(0, 64);
  EXPECT_EQ(b().srq->post({.pieces = {&piece, 1}}), PostStatus::kOk);
  EXPECT_EQ(b().srq->post({.pieces = {&piece, 1}}), PostStatus::kQueueFull);
}

}  // namespace
}  // namespace softhca::driver::verbs::test
