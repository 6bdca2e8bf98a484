// Faults that a user injects into the netdev's send and receive queues, and into their CQs.
#include <gtest/gtest.h>

#include <vector>

#include "connectx/ethernet/receive_host.h"
#include "connectx/ethernet/send_host.h"
#include "connectx/fault_rules.h"
#include "spec/connectx/raw_queues.h"

namespace softhca::connectx::test {
namespace {

class SendQueueFaults : public EthernetSend {
 protected:
  void post() {
    host.write_wqe(sqn, send_of(frame, 18));
    host.ring_send(sqn);
    host.run();
  }
  const std::vector<std::byte> frame = make_frame({});
  FaultRules rules{host.device};
};

TEST_F(SendQueueFaults, AStalledSqGoesOnWhenTheRuleIsRemoved) {
  post();
  expect_completion(0);
  rules.add("function=another,do=stall-send");  // stays
  const auto rule = rules.add("qp=" + std::to_string(sqn) + ",opcode=SEND,nth=2,do=stall-send");
  post();
  expect_completion(1);
  post();
  post();
  EXPECT_EQ(host.port.sent.size(), 2u);
  EXPECT_TRUE(host.poll(cqn).empty());
  EXPECT_EQ(rules.at(rule).matched, 2u);
  rules.remove(rule);
  host.run();
  EXPECT_EQ(host.port.sent.size(), 4u);
  expect_completion(2);
  expect_completion(3);
}

TEST_F(SendQueueFaults, AWqeEndsWithTheStatusOfTheRule) {
  rules.add("nth=2,do=fail-request,status=LOC_PROT_ERR");
  post();
  expect_completion(0);
  post();
  expect_error(1, cqe_syndrome::LOCAL_PROTECTION_ERROR, rdma::Reason::kFaultRule);
  EXPECT_EQ(host.sq_state(sqn), spec::connectx::sq_state::ERR);
  EXPECT_EQ(host.port.sent.size(), 1u);
}

TEST_F(SendQueueFaults, AStalledSqThatFailsFlushes) {
  rules.add("do=stall-send");
  post();
  EXPECT_TRUE(host.poll(cqn).empty());
  EXPECT_TRUE(
      host.modify_sq(sqn, spec::connectx::sq_state::RDY, spec::connectx::sq_state::ERR).ok());
  host.run();
  expect_error(0, cqe_syndrome::WORK_REQUEST_FLUSHED_ERROR, rdma::Reason::kFlushed);
  EXPECT_TRUE(host.port.sent.empty());
}

TEST_F(SendQueueFaults, AStalledCqDropsTheCompletionsOfAnSqThatIsResetOrDestroyed) {
  using State = spec::connectx::sq_state;
  auto rule = rules.add("do=stall-cq");
  post();
  EXPECT_TRUE(host.modify_sq(sqn, State::RDY, State::RST).ok());
  rules.remove(rule);
  expect_no_completion();
  sqn = host.create_sq(cqn);
  rule = rules.add("do=stall-cq");
  post();
  EXPECT_EQ(host.port.sent.size(), 2u);
  using In = spec::connectx::destroy_sq_in;
  const auto destroyed = host.call<spec::connectx::destroy_sq_out, In>(
      FakeHost::Opcode::DESTROY_SQ, [&](auto in) { in.set(In::sqn, sqn); });
  EXPECT_TRUE(destroyed.ok());
  rules.remove(rule);
  expect_no_completion();
}

class ReceiveQueueFaults : public EthernetReceive {
 protected:
  void receive() {
    host.post_receive(rqn, 2048);
    host.arrive(make_frame({}));
    host.run();
  }
  FaultRules rules{host.device};
};

TEST_F(ReceiveQueueFaults, AStalledCqGoesOnWhenTheRuleIsRemoved) {
  const auto rule = rules.add("do=stall-cq");
  receive();
  EXPECT_TRUE(host.poll(cqn).empty());
  rules.remove(rule);
  completion();
}

TEST_F(ReceiveQueueFaults, AStalledCqDropsTheCompletionsOfAnRqThatIsReset) {
  const auto rule = rules.add("do=stall-cq");
  receive();
  EXPECT_TRUE(modify(RqState::RDY, RqState::ERR).ok());
  host.post_receive(rqn, 2048);
  host.run_later();  // the flush waits behind the frame
  EXPECT_TRUE(modify(RqState::ERR, RqState::RST).ok());
  rules.remove(rule);
  EXPECT_TRUE(host.poll(cqn).empty());
}

TEST_F(ReceiveQueueFaults, AStalledCqDropsTheCompletionsOfAnRqThatIsDestroyed) {
  const auto other = host.create_rq(cqn);
  const auto rule = rules.add("do=stall-cq");
  EXPECT_TRUE(host.modify_rq(other, RqState::RDY, RqState::ERR).ok());
  host.post_receive(other, 2048);
  host.run_later();
  using In = spec::connectx::destroy_rq_in;
  const auto destroyed = host.call<spec::connectx::destroy_rq_out, In>(
      FakeHost::Opcode::DESTROY_RQ, [&](auto in) { in.set(In::rqn, other); });
  EXPECT_TRUE(destroyed.ok());
  rules.remove(rule);
  EXPECT_TRUE(host.poll(cqn).empty());
}

}  // namespace
}  // namespace softhca::connectx::test
