// What `softhca inspect` shows of a ConnectX-4.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "connectx/event/completion_queue.h"
#include "connectx/rdma_test_host.h"

namespace softhca::connectx {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::RdmaTestHost;

class InspectTest : public ::testing::Test {
 protected:
  std::string inspect() {
    util::InspectNode tree("connectx");
    host.device.inspect(tree);
    return tree.to_text();
  }
  RdmaTestHost host;
};

TEST_F(InspectTest, ShowsBothSidesPsnsAndRingsOfAQp) {
  auto [a, b] = host.connected();
  const auto text = inspect();
  for (const auto qpn : {a.qpn, b.qpn}) EXPECT_THAT(text, HasSubstr(fmt::format("qp {:#x}:", qpn)));
  for (const auto* name : {"next_send_psn", "last_acked_psn", "next_receive_psn",
                           "send_queue:", "receive_queue:", "consumed", "state: RTS"}) {
    EXPECT_THAT(text, HasSubstr(name));
  }
}

TEST_F(InspectTest, ShowsHowFarTheRingOfACqIs) {
  auto cq = host.create_cq(4);
  std::array<std::byte, 64> cqe{};
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(host.device.completion_queues().find(Cqn(cq.cqn))->write(cqe, false));
  }
  const auto text = inspect();
  const auto at = text.find(fmt::format("cq {:#x}:", cq.cqn));
  ASSERT_NE(at, std::string::npos);
  const auto part = text.substr(at, 400);
  EXPECT_THAT(part, HasSubstr("status: OK"));
  EXPECT_THAT(part, HasSubstr("armed: FIRED"));
  EXPECT_THAT(part, HasSubstr("producer: 3"));
  EXPECT_THAT(part, HasSubstr("consumer: 0"));
}

TEST_F(InspectTest, ShowsTheFirstOfManyAndHowManyMoreThereAre) {
  for (int i = 0; i < 100; ++i) (void)host.create_cq(0);
  const auto text = inspect();
  EXPECT_THAT(text, HasSubstr("completion_queues_not_shown: 37"));
  EXPECT_THAT(text, Not(HasSubstr("event_queues_not_shown")));
}

}  // namespace
}  // namespace softhca::connectx
