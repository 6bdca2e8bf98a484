// Table 2-1-1, chapter 3 and 4.4.4: packets of every kind are lost once, lost forever, or carry a
// wrong CRC. "All recoverable faults like retransmission due to packet drops are also handled
// entirely in the hardware."

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <optional>
#include <string>

#include "driver/world.h"
#include "rsnic/options.h"
#include "util/inspected.h"
#include "wire/ib_packet.h"

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
  static constexpr std::size_t kLong = 5 * 1024 + 100;  // has a first, middle and last packet

  PacketLoss() {
    world_.open();
    a_ = std::make_unique<Endpoint>(world_.a());
    b_ = std::make_unique<Endpoint>(world_.b());
    connect(*a_, *b_, {.path_mtu = 1024, .ack_timeout = 8, .retry_count = 3});
  }

  static std::optional<LossOpcode> opcode_of(const wire::Frame& frame) {
    const auto packet = wire::IbPacket::parse(frame);
    return packet ? std::optional(packet->bth.opcode) : std::nullopt;
  }
  Node& sender() { return GetParam().of_the_answer ? world_.b() : world_.a(); }
  void lose_one() {
    sender().cable->add_fault({.match = [kind = GetParam().opcode](const wire::Frame& frame) {
      return opcode_of(frame) == kind;
    }});
  }
  /// The responder may answer the rest of a READ with other opcodes. Once one response is lost,
  /// this drops all later ones of that operation.
  void lose_for_ever() {
    const auto match = [kind = GetParam().opcode, begun = false](const wire::Frame& frame) mutable {
      const auto opcode = opcode_of(frame);
      if (!opcode) return false;
      begun = begun || *opcode == kind;
      return begun && wire::info(*opcode).operation == wire::info(kind).operation;
    };
    sender().cable->add_fault(
        {.match = match, .nth = 1, .count = std::numeric_limits<std::uint32_t>::max()});
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

  World world_{{}, device_options(), device_options()};
  std::unique_ptr<Endpoint> a_;
  std::unique_ptr<Endpoint> b_;
  driver::Sge piece_{};
};

TEST_P(PacketLoss, ALostPacketIsRepeatedAndTheDataArriveOnce) {
  lose_one();
  post();
  expect_arrival();
  EXPECT_EQ(sender().cable->faults_pending(), 0u) << "no such packet was sent";
}

TEST_P(PacketLoss, ForEverEndsInAnErrorAfterTheRetries) {
  lose_for_ever();
  const auto before = sender().cable->counters().lost;
  post();
  const auto done = wait(world_, *a_->send_cq);
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(to_string(done[0].status), to_string(WorkStatus::kTransportRetryExceeded));
  EXPECT_GE(sender().cable->counters().lost - before, 4u) << "the packet, and three retries";
}

// 4.4.4: "The IBH also covers the retransmission once it encounters an error from CRC".
TEST_P(PacketLoss, APacketWithAWrongCrcIsCountedAndRepeated) {
  auto spoiled = std::make_shared<std::optional<wire::Frame>>();
  sender().cable->add_fault(
      {.match = [kind = GetParam().opcode, spoiled](const wire::Frame& frame) {
        if (spoiled->has_value() || opcode_of(frame) != kind) return false;
        auto& copy = spoiled->emplace(frame);
        copy.own_segments();
        copy.compute_icrc();
        copy.mutable_head()[copy.head().size() - 1] ^= std::byte{1};
        return true;
      }});
  post();
  ASSERT_TRUE(world_.run_until([&] { return spoiled->has_value(); })) << "no such packet was sent";
  sender().port->transmit(**spoiled);
  expect_arrival();
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
