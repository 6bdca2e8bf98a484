// Send doorbells reach every queue, whatever happened before (PRM 7.2, 7.4.4).
#include <gtest/gtest.h>

#include "connectx/base/resources.h"
#include "connectx/ethernet/frames.h"
#include "connectx/ethernet/send_host.h"
#include "connectx/qp/rdma_test_host.h"
#include "connectx/qp/wqe_builder.h"

namespace softhca::connectx::test {
namespace {

class SendDoorbell : public ::testing::Test {
 protected:
  void post_nop(HostQp& qp) {
    host_.post_send(qp, WqeBuilder(WqeBuilder::Opcode::NOP, qp.send_producer, qp.qpn).bytes());
  }
  /// True if a doorbell makes a NOP complete.
  bool is_heard(HostQp& qp) {
    host_.run();  // entering RTS, a QP looks for WQEs without a doorbell
    post_nop(qp);
    host_.ring_send(qp);
    host_.device.run(host_.now);
    return host_.poll_all(host_.cq).size() == 1;
  }

  RdmaTestHost host_;
};

TEST_F(SendDoorbell, TheDoorbellOfTheHighestNumberIsNoticed) {
  const auto all = Resources::queue_numbers(Limits{}, {});
  const auto end = all.first + all.count;
  auto& numbers = host_.device.driver().resources().queue_numbers();
  for (std::uint32_t last = 0; last != end - 3;) last = *numbers.allocate();
  auto [before, highest] = host_.connected();
  ASSERT_EQ(highest.qpn, end - 1);
  EXPECT_TRUE(is_heard(before));
  EXPECT_TRUE(is_heard(highest));
}

// A driver that crashes may leave a doorbell that the device has not yet polled.
TEST_F(SendDoorbell, ADoorbellOfThePreviousDriverDoesNotSilenceTheNextOnes) {
  auto [left, peer] = host_.connected();
  host_.ring_send(left);
  host_.device.driver().drop_objects();
  host_.pd = host_.allocate_pd();
  host_.uar = host_.allocate_uar();
  host_.eqn = host_.create_eq(4, 0, 0);
  host_.cq = host_.create_cq(8);
  auto [qp, other] = host_.connected();
  ASSERT_EQ(qp.qpn, left.qpn);
  EXPECT_TRUE(is_heard(qp));
}

class SqDoorbell : public EthernetSend {
 protected:
  /// Posts a frame to `sqn` and rings. Expects the frame on the wire.
  void expect_heard() {
    host.run();
    host.port.sent.clear();
    const auto frame = make_frame({.payload = 100});
    host.post_send(sqn, send_of(frame, 18));
    ASSERT_EQ(host.port.sent.size(), 1u);
    EXPECT_EQ(host.port.sent[0], frame);
  }
};

TEST_F(SqDoorbell, TheDoorbellOfTheHighestNumberIsNoticed) {
  const auto all = Resources::queue_numbers(Limits{}, {});
  const auto end = all.first + all.count;
  auto& numbers = host.device.driver().resources().queue_numbers();
  for (auto last = sqn; last != end - 2;) last = *numbers.allocate();
  sqn = host.create_sq(cqn);
  ASSERT_EQ(sqn, end - 1);
  expect_heard();
}

TEST_F(SqDoorbell, ADoorbellOfThePreviousDriverDoesNotSilenceTheNextOnes) {
  const auto left = sqn;
  host.ring_send(left);
  host.device.driver().drop_objects();
  host.pd = host.allocate_pd();
  host.transport_domain = host.allocate_transport_domain();
  ASSERT_EQ(host.create_key(host.pd), EthernetHost::kKey);
  host.uar = host.allocate_uar();
  host.eqn = host.create_eq(4, 0, 0);
  cqn = host.create_cq();
  sqn = host.create_sq(cqn);
  ASSERT_EQ(sqn, left);
  expect_heard();
}

}  // namespace
}  // namespace softhca::connectx::test
