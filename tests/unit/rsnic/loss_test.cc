// Table 2-1-1, chapter 3 and 4.4.4: packets of every kind are lost once, lost forever, or carry a
// wrong CRC. "All recoverable faults like retransmission due to packet drops are also handled
// entirely in the hardware."

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "driver/world.h"
#include "rsnic/options.h"
#include "util/inspected.h"
#include "wire/opcode.h"

namespace softhca::rsnic {
namespace {

using namespace driver::test;  // World, Endpoint
using driver::PostStatus;
using driver::SendOpcode;
using driver::WorkStatus;
using LossOpcode = wire::Opcode;

struct Kind {
  LossOpcode opcode;
  SendOpcode request;
  bool long_message;
  bool of_the_answer;  ///< the responder sends it
};

class PacketLoss : public ::testing::TestWithParam<Kind> {
 protected:
  static constexpr std::uint32_t kMtu = 1024;
  static constexpr std::size_t kLong = 5 * kMtu + 100;  // has a first, middle and last packet

  PacketLoss() {
    world_.open();
    a_ = std::make_unique<Endpoint>(world_.a());
    b_ = std::make_unique<Endpoint>(world_.b());
    connect(*a_, *b_, {.path_mtu = kMtu, .ack_timeout = 8, .retry_count = 3});
  }

  /// Adds a rule for packets that the sender of this kind sends.
  const fabric::NetworkFaults::Counters& add_fault(std::string_view keys) {
    return world_.add_fault(
        fmt::format("port=connectx{},{}", GetParam().of_the_answer ? 1 : 0, keys));
  }
  const fabric::NetworkFaults::Counters& fail_one(std::string_view action) {
    return add_fault(fmt::format("opcode={},nth=1,do={}", to_string(GetParam().opcode), action));
  }
  /// The responder may answer the rest of a READ with other opcodes. Once one response is lost, all
  /// later ones are.
  const fabric::NetworkFaults::Counters& lose_for_ever() {
    if (wire::info(GetParam().opcode).operation != wire::Operation::kRdmaReadResponse) {
      return add_fault(fmt::format("opcode={},do=lose", to_string(GetParam().opcode)));
    }
    return add_fault(fmt::format("opcode=read-response,nth={},for=3600s,do=lose", place()));
  }
  /// The number of the first response of this kind in a message.
  std::size_t place() const {
    if (GetParam().opcode == LossOpcode::RC_RDMA_READ_RESPONSE_MIDDLE) return 2;
    return GetParam().opcode == LossOpcode::RC_RDMA_READ_RESPONSE_LAST ? kLong / kMtu + 1 : 1;
  }
  bool is_read() const { return GetParam().request == SendOpcode::kRdmaRead; }
  bool takes_receive() const {
    return GetParam().request != SendOpcode::kRdmaRead &&
           GetParam().request != SendOpcode::kRdmaWrite;
  }
  std::size_t size() const { return GetParam().long_message ? kLong : 100; }
  /// Posts one request that uses this kind of packet.
  void post() {
    const auto bytes = pattern(size(), 7);
    auto& source = is_read() ? *b_ : *a_;
    std::ranges::copy(bytes, source.bytes(0, size()).begin());
    if (takes_receive()) b_->receive(9, 0, size());
    piece_ = a_->piece(0, size());
    ASSERT_EQ(a_->qp->post_send({.id = 1,
                                 .opcode = GetParam().request,
                                 .pieces = {&piece_, 1},
                                 .remote_address = b_->address(0),
                                 .rkey = b_->key->key(),
                                 .immediate = 77}),
              PostStatus::kOk);
  }
  void expect_arrival() {
    const auto done = wait(world_, *a_->send_cq);
    ASSERT_EQ(done.size(), 1u);
    EXPECT_EQ(to_string(done[0].status), to_string(WorkStatus::kSuccess));
    EXPECT_TRUE(std::ranges::equal(a_->bytes(0, size()), b_->bytes(0, size())));
    if (!takes_receive()) return;
    EXPECT_EQ(wait(world_, *b_->receive_cq).size(), 1u);
    EXPECT_TRUE(wait(world_, *b_->receive_cq).empty()) << "once";
  }

  World world_{device_options(), device_options()};
  std::unique_ptr<Endpoint> a_;
  std::unique_ptr<Endpoint> b_;
  driver::Sge piece_{};
};

TEST_P(PacketLoss, ALostPacketIsRepeatedAndTheDataArriveOnce) {
  const auto& lost = fail_one("lose");
  post();
  expect_arrival();
  EXPECT_EQ(lost.fired, 1u) << "no such packet was sent";
}

TEST_P(PacketLoss, ForEverEndsInAnErrorAfterTheRetries) {
  const auto& lost = lose_for_ever();
  post();
  const auto done = wait(world_, *a_->send_cq);
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(to_string(done[0].status), to_string(WorkStatus::kTransportRetryExceeded));
  EXPECT_GE(lost.fired, 4u) << "the packet, and three retries";
}

// 4.4.4: "The IBH also covers the retransmission once it encounters an error from CRC".
TEST_P(PacketLoss, APacketWithAWrongCrcIsCountedAndRepeated) {
  const auto& spoiled = fail_one("corrupt,part=icrc");
  post();
  expect_arrival();
  EXPECT_EQ(spoiled.fired, 1u) << "no such packet was sent";
  const auto& receiver = GetParam().of_the_answer ? world_.a() : world_.b();
  EXPECT_THAT(softhca::test::inspected(*receiver.device), ::testing::HasSubstr("wrong ICRC: 1\n"));
}

constexpr Kind kKinds[] = {
    {LossOpcode::RC_SEND_FIRST, SendOpcode::kSend, true, false},
    {LossOpcode::RC_SEND_MIDDLE, SendOpcode::kSend, true, false},
    {LossOpcode::RC_SEND_LAST, SendOpcode::kSend, true, false},
    {LossOpcode::RC_SEND_LAST_WITH_IMMEDIATE, SendOpcode::kSendWithImmediate, true, false},
    {LossOpcode::RC_SEND_ONLY, SendOpcode::kSend, false, false},
    {LossOpcode::RC_SEND_ONLY_WITH_IMMEDIATE, SendOpcode::kSendWithImmediate, false, false},
    {LossOpcode::RC_RDMA_WRITE_FIRST, SendOpcode::kRdmaWrite, true, false},
    {LossOpcode::RC_RDMA_WRITE_MIDDLE, SendOpcode::kRdmaWrite, true, false},
    {LossOpcode::RC_RDMA_WRITE_LAST, SendOpcode::kRdmaWrite, true, false},
    {LossOpcode::RC_RDMA_WRITE_LAST_WITH_IMMEDIATE, SendOpcode::kRdmaWriteWithImmediate, true,
     false},
    {LossOpcode::RC_RDMA_WRITE_ONLY, SendOpcode::kRdmaWrite, false, false},
    {LossOpcode::RC_RDMA_WRITE_ONLY_WITH_IMMEDIATE, SendOpcode::kRdmaWriteWithImmediate, false,
     false},
    {LossOpcode::RC_RDMA_READ_REQUEST, SendOpcode::kRdmaRead, true, false},
    {LossOpcode::RC_RDMA_READ_RESPONSE_FIRST, SendOpcode::kRdmaRead, true, true},
    {LossOpcode::RC_RDMA_READ_RESPONSE_MIDDLE, SendOpcode::kRdmaRead, true, true},
    {LossOpcode::RC_RDMA_READ_RESPONSE_LAST, SendOpcode::kRdmaRead, true, true},
    {LossOpcode::RC_RDMA_READ_RESPONSE_ONLY, SendOpcode::kRdmaRead, false, true},
    {LossOpcode::RC_ACKNOWLEDGE, SendOpcode::kRdmaWrite, true, true},
};
INSTANTIATE_TEST_SUITE_P(Kinds, PacketLoss, ::testing::ValuesIn(kKinds), [](const auto& kind) {
  return std::string(to_string(kind.param.opcode));
});

}  // namespace
}  // namespace softhca::rsnic
