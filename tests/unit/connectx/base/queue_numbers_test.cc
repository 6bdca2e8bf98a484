// Queues have numbers of the block that the device was given, so that the QPN of a packet
// identifies the device among several with one network address.
#include "connectx/base/queue_numbers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "connectx/base/resources.h"
#include "connectx/ethernet/frames.h"
#include "connectx/ethernet/send_host.h"
#include "connectx/qp/rdma_test_host.h"
#include "connectx/qp/wqe_builder.h"
#include "spec/connectx/dct.h"
#include "util/inspected.h"

namespace softhca::connectx {
namespace {

constexpr std::uint32_t kBlockSize = 1u << 16;

constexpr QueueNumbers block(std::uint32_t number) {
  return {.first = number * kBlockSize, .count = kBlockSize};
}

TEST(QueueNumbersTest, WithoutABlockAllLimitsCanBeReachedTogether) {
  const Limits limits;
  const auto numbers = Resources::queue_numbers(limits, {});
  EXPECT_EQ(numbers.first, 0x40u);
  EXPECT_EQ(numbers.count, Limits::count(limits.log_max_qp) + Limits::count(limits.log_max_sq) +
                               Limits::count(limits.log_max_rq) + kMaxDcts);
  EXPECT_EQ(Resources::fit(limits, {}), limits);
}

// QPNs 0 and 1 are the special QPs on the wire, 0xFFFFFF that of multicast packets (IBTA 3.5.10,
// 10.5).
TEST(QueueNumbersTest, SpecialNumbersAreInNoBlock) {
  const Limits limits;
  EXPECT_EQ(Resources::queue_numbers(limits, block(0)),
            (QueueNumbers{.first = 0x40, .count = kBlockSize - 0x40}));
  EXPECT_EQ(Resources::queue_numbers(limits, block(7)), block(7));
  EXPECT_EQ(Resources::queue_numbers(limits, block(255)),
            (QueueNumbers{.first = 0xFF'0000, .count = kBlockSize - 1}));
  EXPECT_EQ(Resources::queue_numbers(limits, {.first = 0xFF'FFFF, .count = 9}).count, 0u);
}

TEST(QueueNumbersTest, LimitsAreNoHigherThanTheBlockAllows) {
  const auto whole = Resources::fit({}, block(7));
  EXPECT_EQ(whole.log_max_qp, 16u);
  EXPECT_EQ(whole.log_max_sq, Limits{}.log_max_sq);
  const auto cut = Resources::fit({}, block(255));
  EXPECT_EQ(cut.log_max_qp, 15u);
  EXPECT_EQ(cut.log_max_sq, 15u);
  EXPECT_EQ(cut.log_max_rq, 15u);
  EXPECT_EQ(cut.log_max_srq, 15u);
  EXPECT_EQ(cut.log_max_rmp, 15u);
}

class QueuesOfABlock : public testing::Test {
 protected:
  test::RdmaTestHost host_{HostOptions{.queue_numbers = block(0xFE)}};

  static bool is_in_block(std::uint32_t number) { return number >> 16 == 0xFE; }
};

TEST_F(QueuesOfABlock, QpsHaveItsNumbersAndExchangeData) {
  auto [a, b] = host_.connected();
  EXPECT_EQ(a.qpn, 0xFE'0000u);
  EXPECT_TRUE(is_in_block(b.qpn));
  const auto to = host_.allocate(64);
  host_.post_receive(b, to, 64);
  const auto text = host_.put_text("in a block");
  host_.post_send(a, test::WqeBuilder(test::WqeBuilder::Opcode::SEND, a.send_producer, a.qpn)
                         .data(text, 10, test::kKey)
                         .bytes());
  host_.ring_send(a);
  host_.run();
  EXPECT_EQ(host_.text(to, 10), "in a block");
}

TEST_F(QueuesOfABlock, TheQpOfServiceQp1HasItsNumber) {
  EXPECT_TRUE(is_in_block(host_.datagram_qp({.service = test::Service::QP1}).qpn));
}

// XRC requests name the SRQ on the wire (IBTA Annex A14).
TEST_F(QueuesOfABlock, SharedReceiveQueuesHaveItsNumbers) {
  EXPECT_EQ(host_.create_rmp(3).rmpn, 0xFE'0000u);
}

TEST_F(QueuesOfABlock, DctsHaveItsNumbers) {
  using namespace spec::connectx;
  const auto srq = host_.create_rmp(3);
  const auto out =
      host_.call<create_dct_out, create_dct_in>(test::Opcode::CREATE_DCT, [&](auto in) {
        const auto context = in.sub(create_dct_in::dct_context_entry);
        context.set(dctc::cqn, host_.cq.cqn);
        context.set(dctc::srqn_xrqn, srq.rmpn);
        context.set(dctc::pd, host_.pd);
        context.set(dctc::mtu, 3);
        context.set(dctc::port, 1);
        context.set(dctc::min_rnr_nak, 12);
      });
  ASSERT_TRUE(out.ok()) << out.syndrome();
  EXPECT_TRUE(is_in_block(out.as<create_dct_out>().get(create_dct_out::dctn)));
}

TEST_F(QueuesOfABlock, DestroyedNumbersAreOfTheBlockAgain) {
  auto& rdma = host_.device.driver().rdma();
  auto qp = host_.create_qp();
  EXPECT_NE(rdma.find_qp(Qpn(qp.qpn)), nullptr);
  EXPECT_EQ(rdma.find_qp(Qpn(qp.qpn & 0xFFFF)), nullptr) << "the same number of block 0";
  EXPECT_EQ(rdma.find_qp(Qpn(0xFF'FFFF)), nullptr);
  host_.destroy(qp);
  EXPECT_EQ(rdma.find_qp(Qpn(qp.qpn)), nullptr);
  EXPECT_TRUE(is_in_block(host_.create_qp().qpn));
}

TEST_F(QueuesOfABlock, TheyAreInspectedByTheirNumbers) {
  const auto qp = host_.create_qp();
  const auto text = softhca::test::inspected(host_.device);
  EXPECT_THAT(text, testing::HasSubstr(fmt::format("qp {:#x}:", qp.qpn)));
  EXPECT_THAT(text, testing::HasSubstr("queue_pairs_count: 1"));
  EXPECT_THAT(text, testing::HasSubstr("RESET: 1"));
}

TEST_F(QueuesOfABlock, AResetEndsThemAll) {
  const auto qp = host_.create_qp();
  host_.device.driver().drop_objects();
  host_.run();
  EXPECT_EQ(host_.device.driver().rdma().find_qp(Qpn(qp.qpn)), nullptr);
}

class SendQueueOfABlock : public test::EthernetSend {
 protected:
  SendQueueOfABlock() : EthernetSend(HostOptions{.queue_numbers = block(0xFE)}) {}
};

TEST_F(SendQueueOfABlock, ItsDoorbellIsNoticed) {
  EXPECT_EQ(sqn >> 16, 0xFEu);
  const auto frame = test::make_frame({.payload = 100});
  for (int i = 0; i != 2; ++i) {
    host.port.sent.clear();
    host.post_send(sqn, send_of(frame, 18));
    ASSERT_EQ(host.port.sent.size(), 1u);
    EXPECT_EQ(host.port.sent[0], frame);
  }
  host.ring_send(sqn & 0xFFFF);  // of no queue
  host.ring_send(0xFF'FFFF);
}

}  // namespace
}  // namespace softhca::connectx
