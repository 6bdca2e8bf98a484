// Stops and restarts of a QP's send queue: CE=01 (PRM Table 26), SQE, SQD (IBTA 10.3.1).
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "connectx/qp/data_path.h"

namespace softhca::connectx {
namespace {

using namespace std::chrono_literals;
using spec::connectx::wqe_completion;
using test::EventType;
using test::HostQp;
using test::RdmaTestHost;
using test::Syndrome;
using Command_ = spec::connectx::command_opcode;
using WqeOpcode = spec::connectx::wqe_opcode;
using State = spec::connectx::qp_state;
using Status = spec::connectx::command_status;

class RdmaSendQueue : public test::RdmaDataPath {};

// PRM Table 26, CE: "Generate CQE only on first WQE completion with error". DPDK sizes its CQs for
// the few WQEs that request a CQE, and gives all others this mode.
TEST_F(RdmaSendQueue, AfterAnErrorOnlyOneFlushedWqeWithFirstErrorHasACqe) {
  auto cq = host_.create_cq(2);
  auto [a, b] = host_.connected({.log_sq = 6, .cqn = cq.cqn});
  (void)events();
  const auto quiet = [&](HostQp& qp) {
    return wqe(qp, WqeOpcode::RDMA_WRITE)
        .remote(0x1000, 0xBAD)
        .completes(wqe_completion::ON_FIRST_ERROR);
  };
  for (int i = 0; i != 40; ++i) host_.post_send(a, quiet(a).data(0, 8, 0xBAD00).bytes());
  host_.post_send(a, wqe(a, WqeOpcode::NOP).bytes());
  host_.ring_send(a);
  host_.run();
  auto cqes = host_.poll_all(cq);
  ASSERT_EQ(cqes.size(), 2u);
  EXPECT_EQ(cqes[0].syndrome, Syndrome::LOCAL_PROTECTION_ERROR);
  EXPECT_EQ(cqes[0].wqe_counter, 0);
  EXPECT_EQ(cqes[1].syndrome, Syndrome::WORK_REQUEST_FLUSHED_ERROR);
  EXPECT_EQ(cqes[1].wqe_counter, 40) << "it asks for a CQE";
  EXPECT_TRUE(events().empty());

  // If no WQE has failed before, the first flushed one has a CQE.
  ASSERT_TRUE(host_.to_error(b));
  for (int i = 0; i != 20; ++i) host_.post_send(b, quiet(b).inline_data("x").bytes());
  host_.ring_send(b);
  host_.run();
  cqes = host_.poll_all(cq);
  ASSERT_EQ(cqes.size(), 1u);
  EXPECT_EQ(cqes[0].syndrome, Syndrome::WORK_REQUEST_FLUSHED_ERROR);
  EXPECT_EQ(cqes[0].wqe_counter, 0);

  // After a reset the next error is a first error again.
  ASSERT_TRUE(host_.to_reset(a));
  std::memset(host_.at(a.record), 0, 8);
  ASSERT_TRUE(host_.to_init(a) && host_.to_error(a));
  send(a, quiet(a).inline_data("x"));
  host_.run();
  EXPECT_EQ(host_.poll_all(cq).size(), 1u);
}

// SQERR2RTS: WQEs posted in SQE are flushed, then the queue works again.
TEST_F(RdmaSendQueue, AQueueThatWorksAgainHasAFirstErrorAgain) {
  auto qp = host_.datagram_qp();
  const auto quiet = [&](std::uint32_t key) {
    return wqe(qp, WqeOpcode::SEND)
        .datagram(qp.qpn, RdmaTestHost::kQkey, host_.mac, host_.gid, 3)
        .data(host_.put_text("x"), 1, key)
        .completes(wqe_completion::ON_FIRST_ERROR);
  };
  for (int life = 0; life != 3; ++life) {
    const auto first = qp.send_producer;
    for (int i = 0; i != 3; ++i) host_.post_send(qp, quiet(0xBAD00).bytes());
    host_.ring_send(qp);
    host_.run();
    const auto cqes = completions();
    ASSERT_EQ(cqes.size(), 1u) << life;
    EXPECT_EQ(cqes[0].wqe_counter, first);
    EXPECT_EQ(cqes[0].syndrome, Syndrome::LOCAL_PROTECTION_ERROR);
    ASSERT_EQ(host_.query_state(qp), state(State::SQER));
    if (life == 1) {
      for (int i = 0; i != 3; ++i) host_.post_send(qp, quiet(RdmaTestHost::kKey).bytes());
    }
    ASSERT_TRUE(host_.modify(qp, Command_::SQERR2RTS_QP));
    host_.run();
    EXPECT_TRUE(completions().empty()) << "what is flushed follows an error";
    send(qp, quiet(RdmaTestHost::kKey));
    host_.run();
    EXPECT_TRUE(completions().empty());
  }
}

// Early mlx5 drivers take a QP to SQD. Begun requests are finished; new posts wait.
TEST_F(RdmaSendQueue, AQpInSqdFinishesWhatItHasBegunAndReportsWhenItIsDrained) {
  auto [a, b] = host_.connected();
  host_.run();
  (void)events();
  const auto begin = [&](const char* text) {
    host_.post_receive(b, host_.allocate(64, 64), 64);
    send(a, wqe(a, WqeOpcode::SEND).inline_data(text));
  };
  begin("one");
  host_.run_rdma();  // sent, not yet answered
  ASSERT_TRUE(host_.modify(a, Command_::RTS2SQD_QP));
  EXPECT_EQ(host_.query_state(a), state(State::SQ_DRAINING));
  EXPECT_EQ(host_.modify(a, Command_::SQD2SQD_QP).status(), Status::BAD_RESOURCE_STATE);
  begin("two");
  host_.run(1ms);
  EXPECT_EQ(host_.query_state(a), state(State::SQD));
  EXPECT_EQ(completions().size(), 2u) << "of both sides of the first alone";
  EXPECT_EQ(events(), std::vector{EventType::SQ_DRAINED});
  ASSERT_TRUE(host_.modify(a, Command_::SQD2SQD_QP));
  EXPECT_EQ(host_.modify(a, Command_::RTS2SQD_QP).status(), Status::BAD_RESOURCE_STATE);
  for (const auto back : {Command_::SQD2RTS_QP, Command_::SQD_RTS_QP}) {
    ASSERT_TRUE(host_.modify(a, back));
    EXPECT_EQ(host_.query_state(a), state(State::RTS));
    host_.run(1ms);
    EXPECT_EQ(completions().size(), 2u) << "what was posted in SQD";
    ASSERT_TRUE(host_.modify(a, Command_::RTS2SQD_QP));
    host_.run(1ms);
    begin("three");
    host_.run(1ms);
    EXPECT_TRUE(completions().empty());
  }
}

}  // namespace
}  // namespace softhca::connectx
