// WQEs in, error CQEs and events out: what fails, and what is flushed behind it (mlx5 driver
// interface 8.7, 8.12).
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "connectx/qp/data_path.h"
#include "connectx/queue/wqe_fault.h"
#include "util/log.h"

namespace softhca::connectx {
namespace {

using namespace std::chrono_literals;
using test::EventType;
using test::HostQp;
using test::kKey;
using test::RdmaDataPath;
using test::RdmaTestHost;
using test::Syndrome;
using test::WqeBuilder;
using CqeCode = test::CqeOpcode;
using WqeOpcode = spec::connectx::wqe_opcode;
using State = spec::connectx::qp_state;

// Errors ---------------------------------------------------------------------------------------

TEST_F(RdmaDataPath, MalformedWqeEndsInQpOperationErrorAndTheRestIsFlushed) {
  auto [a, b] = host_.connected();
  host_.post_receive(a, host_.allocate(64, 64), 64);
  host_.post_send(a, wqe(a, WqeOpcode::UMR).unsignaled().bytes());
  host_.post_send(a, wqe(a, WqeOpcode::SEND).unsignaled().bytes());
  host_.ring_send(a);
  host_.run();
  const auto cqes = completions();
  ASSERT_EQ(cqes.size(), 3u);
  EXPECT_EQ(cqes[0].opcode, CqeCode::REQUESTER_ERROR);
  EXPECT_EQ(cqes[0].syndrome, Syndrome::LOCAL_QP_OPERATION_ERROR);
  EXPECT_EQ(cqes[0].reason, static_cast<int>(WqeFault::kUmrShort));
  EXPECT_EQ(cqes[0].wqe_counter, 0);
  EXPECT_EQ(cqes[0].qpn, a.qpn);
  EXPECT_EQ(cqes[1].opcode, CqeCode::REQUESTER_ERROR);
  EXPECT_EQ(cqes[1].syndrome, Syndrome::WORK_REQUEST_FLUSHED_ERROR);
  EXPECT_EQ(cqes[1].wqe_counter, 1);
  EXPECT_EQ(cqes[2].opcode, CqeCode::RESPONDER_ERROR);
  EXPECT_EQ(cqes[2].syndrome, Syndrome::WORK_REQUEST_FLUSHED_ERROR);
  EXPECT_EQ(host_.query_state(a), state(State::ERR));
}

TEST_F(RdmaDataPath, AMalformedWqeIsReportedOnceWithItsNumberWordsAndSection) {
  std::vector<std::string> lines;
  util::set_log_sink([&](util::LogLevel, std::string_view text) { lines.emplace_back(text); });
  auto [a, b] = host_.connected();
  send(a, WqeBuilder(WqeOpcode::SEND, static_cast<std::uint16_t>(a.send_producer + 1), a.qpn));
  host_.run();
  util::set_log_sink({});
  const auto& info = describe(WqeFault::kWrongIndex);
  EXPECT_THAT(lines, ::testing::ElementsAre(fmt::format(
                         "connectx0: QP {:#x}: malformed send WQE: {} ({}, reason {})", a.qpn,
                         info.text, info.section, static_cast<int>(WqeFault::kWrongIndex))));
}

TEST_F(RdmaDataPath, SizesThatCannotBeAreMalformed) {
  for (const auto& [units, fault] : {std::pair{0u, WqeFault::kSizeZero},
                                     {9u, WqeFault::kPastPosted},
                                     {63u, WqeFault::kPastPosted}}) {
    auto [a, b] = host_.connected();
    host_.post_send(a, wqe(a, WqeOpcode::SEND).units(units).bytes());
    host_.ring_send(a);
    host_.run();
    const auto cqes = completions();
    ASSERT_EQ(cqes.size(), 1u);
    EXPECT_EQ(cqes[0].reason, static_cast<int>(fault));
  }
}

// rdmamojo's page of ibv_poll_cq names both cases for IBV_WC_LOC_LEN_ERR.
TEST_F(RdmaDataPath, AMessageBeyondLogMsgMaxIsALengthError) {
  for (const auto opcode : {WqeOpcode::SEND, WqeOpcode::RDMA_WRITE, WqeOpcode::RDMA_READ}) {
    auto [a, b] = host_.connected();
    auto message = wqe(a, opcode);
    if (opcode != WqeOpcode::SEND) message.remote(0, kKey);
    send(a, message.data(0, 1u << 30, kKey).data(0, 1, kKey));
    host_.run();
    const auto cqes = completions();
    ASSERT_EQ(cqes.size(), 1u);
    EXPECT_EQ(cqes[0].syndrome, Syndrome::LOCAL_LENGTH_ERROR);
    EXPECT_EQ(cqes[0].reason, static_cast<int>(rdma::Reason::kMessageTooLong));
  }
}

TEST_F(RdmaDataPath, AnAtomicWhoseResultHasNot8BytesIsALengthError) {
  for (const std::uint32_t bytes : {4u, 16u}) {
    auto [a, b] = host_.connected();
    const auto place = host_.allocate(64, 64);
    send(a, wqe(a, WqeOpcode::ATOMIC_FA).remote(place, kKey).atomic(1, 0).data(place, bytes, kKey));
    host_.run();
    const auto cqes = completions();
    ASSERT_EQ(cqes.size(), 1u);
    EXPECT_EQ(cqes[0].syndrome, Syndrome::LOCAL_LENGTH_ERROR);
    EXPECT_EQ(cqes[0].reason, static_cast<int>(rdma::Reason::kAtomicSize));
  }
}

TEST_F(RdmaDataPath, APeerMayNotWriteOrReadBeyondLogMsgMax) {
  const auto place = host_.allocate(8192, 64);
  for (const auto opcode : {WqeOpcode::RDMA_WRITE, WqeOpcode::RDMA_READ}) {
    auto [a, b] = host_.connected({}, {.log_msg_max = 12});
    send(a, wqe(a, opcode).remote(place, kKey).data(place, 4096, kKey));
    host_.run();
    EXPECT_EQ(completions().at(0).opcode, CqeCode::REQUESTER);
    send(a, wqe(a, opcode).remote(place, kKey).data(place, 4097, kKey));
    host_.run();
    EXPECT_EQ(completions().at(0).syndrome, Syndrome::REMOTE_INVALID_REQUEST_ERROR);
  }
}

TEST_F(RdmaDataPath, WrongLocalKeyIsAProtectionError) {
  auto [a, b] = host_.connected();
  const auto buffer = host_.put_text("data");
  send(a, wqe(a, WqeOpcode::SEND).data(buffer, 4, kKey + 1));
  host_.run();
  const auto cqes = completions();
  ASSERT_EQ(cqes.size(), 1u);
  EXPECT_EQ(cqes[0].syndrome, Syndrome::LOCAL_PROTECTION_ERROR);
  EXPECT_GE(cqes[0].reason, 0x80);
}

TEST_F(RdmaDataPath, WrongRemoteKeyIsARemoteAccessError) {
  auto [a, b] = host_.connected();
  const auto buffer = host_.put_text("data");
  send(a, wqe(a, WqeOpcode::RDMA_WRITE).remote(buffer, kKey + 1).data(buffer, 4, kKey));
  host_.run();
  const auto cqes = completions();
  ASSERT_EQ(cqes.size(), 1u);
  EXPECT_EQ(cqes[0].syndrome, Syndrome::REMOTE_ACCESS_ERROR);
  EXPECT_EQ(host_.query_state(b), state(State::ERR));
  EXPECT_THAT(events(), ::testing::Contains(EventType::LOCAL_ACCESS_VIOLATION_WQ_ERROR));
}

// Its record and the sizes of a receive queue in its context have no meaning. After a WRITE, the
// SEND takes the fast path.
TEST_F(RdmaDataPath, AQpWithoutReceiveQueueHasNoReceiveWqes) {
  auto [a, b] = host_.connected({}, {.no_receive_queue = true});
  const auto from = host_.put_text("data");
  const auto written = host_.allocate(64, 64);
  const auto untouched = host_.allocate(64, 64);
  host_.post_receive(b, untouched, 64);
  send(a, wqe(a, WqeOpcode::RDMA_WRITE).remote(written, kKey).data(from, 4, kKey));
  host_.run();
  EXPECT_EQ(completions().at(0).opcode, CqeCode::REQUESTER);
  send(a, wqe(a, WqeOpcode::SEND).data(from, 4, kKey));
  host_.run();
  const auto cqes = completions();
  ASSERT_EQ(cqes.size(), 1u);
  EXPECT_EQ(cqes[0].qpn, a.qpn);
  EXPECT_EQ(cqes[0].syndrome, Syndrome::REMOTE_INVALID_REQUEST_ERROR);
  EXPECT_EQ(host_.text(untouched, 4), std::string(4, '\0'));
}

TEST_F(RdmaDataPath, CounterPastTheRingIsCatastrophic) {
  auto [a, b] = host_.connected();
  util::store_be32(host_.at(a.record + 4), 33);  // the ring has 32 basic blocks
  host_.ring_send(a);
  host_.run();
  EXPECT_THAT(events(), ::testing::Contains(EventType::LOCAL_WQ_CATASTROPHIC_ERROR));
  EXPECT_EQ(host_.query_state(a), state(State::ERR));
}

TEST_F(RdmaDataPath, CqOverrunFailsItsQps) {
  host_.cq = host_.create_cq(1);
  auto [a, b] = host_.connected();
  for (int i = 0; i < 3; ++i) host_.post_send(a, wqe(a, WqeOpcode::NOP).bytes());
  host_.ring_send(a);
  host_.run();
  EXPECT_EQ(host_.query_state(a), state(State::ERR));
  EXPECT_THAT(events(), ::testing::IsSupersetOf(
                            {EventType::CQ_ERROR, EventType::LOCAL_WQ_CATASTROPHIC_ERROR}));
  EXPECT_EQ(host_.query_state(b), state(State::RTS));
}

// Failing a QP takes about 1,000 units. All QPs of a guest may use the same CQ.
TEST_F(RdmaDataPath, ManyQpsOfAnOverrunCqFailOverTurns) {
  constexpr std::size_t kQps = 64, kCqes = 2;
  constexpr std::int64_t kTurn = 40'000, kFailWork = 1'000;
  host_.cq = host_.create_cq(1);
  std::vector<HostQp> qps;
  for (std::size_t i = 0; i != kQps; ++i) {
    auto [a, b] = host_.connected();
    host_.post_send(a, wqe(a, WqeOpcode::NOP).bytes());
    qps.push_back(a);
  }
  for (const auto& qp : qps) host_.ring_send(qp);
  std::int64_t longest = 0;
  host_.turn = [&](pcie::Function& function, util::Time at) {
    const auto before = function.work_done();
    const auto next = function.run(at, kTurn);
    longest = std::max(longest, function.work_done() - before);
    return next;
  };
  host_.run();
  EXPECT_LE(longest, kTurn + 32 * kFailWork);
  std::size_t failed = 0;
  for (auto& qp : qps) failed += host_.query_state(qp) == state(State::ERR);
  EXPECT_EQ(failed, kQps - kCqes);
}

// Flushing (8.12) ------------------------------------------------------------------------------

TEST_F(RdmaDataPath, ErrorStateFlushesBothQueuesAlsoUnsignaled) {
  auto [a, b] = host_.connected();
  ASSERT_TRUE(host_.to_error(b));
  for (int i = 0; i < 3; ++i) host_.post_receive(a, host_.allocate(64, 64), 64);
  host_.post_send(a, wqe(a, WqeOpcode::SEND).unsignaled().bytes());
  host_.post_send(a, wqe(a, WqeOpcode::NOP).bytes());
  ASSERT_TRUE(host_.to_error(a));
  host_.ring_send(a);
  host_.run();
  const auto cqes = completions();
  ASSERT_EQ(cqes.size(), 5u);
  unsigned receives = 0, sends = 0;
  for (const auto& cqe : cqes) {
    EXPECT_EQ(cqe.syndrome, Syndrome::WORK_REQUEST_FLUSHED_ERROR);
    if (cqe.opcode == CqeCode::RESPONDER_ERROR) {
      EXPECT_EQ(cqe.wqe_counter, receives++);
    } else {
      EXPECT_EQ(cqe.opcode, CqeCode::REQUESTER_ERROR);
      EXPECT_EQ(cqe.wqe_counter, sends++);
    }
  }
  EXPECT_EQ(receives, 3u);
  EXPECT_EQ(sends, 2u);
}

// 8.1: "a QP in ERR state whose ULP posts a drain receive WR"
TEST_F(RdmaDataPath, ReceivePostedInErrorIsFlushedWithoutADoorbell) {
  auto [a, b] = host_.connected();
  ASSERT_TRUE(host_.to_error(a));
  host_.run(1ms);
  EXPECT_TRUE(completions().empty());
  for (int i = 0; i < 3; ++i) {
    host_.post_receive(a, host_.allocate(64, 64), 64);
    host_.run(2ms);
    const auto cqes = completions();
    ASSERT_EQ(cqes.size(), 1u);
    EXPECT_EQ(cqes[0].opcode, CqeCode::RESPONDER_ERROR);
    EXPECT_EQ(cqes[0].wqe_counter, i);
    host_.run(5s);
  }
}

TEST_F(RdmaDataPath, SendPostedInErrorIsFlushed) {
  auto [a, b] = host_.connected();
  ASSERT_TRUE(host_.to_error(a));
  host_.run();
  send(a, wqe(a, WqeOpcode::RDMA_WRITE).unsignaled().remote(0, 0));
  host_.run();
  const auto cqes = completions();
  ASSERT_EQ(cqes.size(), 1u);
  EXPECT_EQ(cqes[0].syndrome, Syndrome::WORK_REQUEST_FLUSHED_ERROR);
  EXPECT_EQ(cqes[0].wqe_counter, 0);
}

TEST_F(RdmaDataPath, NothingIsPolledWithoutAQpInError) {
  auto [a, b] = host_.connected();
  host_.run();
  EXPECT_EQ(host_.run_rdma(), util::kNever);
  ASSERT_TRUE(host_.to_error(a));
  host_.run();
  EXPECT_NE(host_.run_rdma(), util::kNever);
  ASSERT_TRUE(host_.to_reset(a));
  host_.run(2ms);
  EXPECT_EQ(host_.run_rdma(), util::kNever);
}

TEST_F(RdmaDataPath, AllQpsInErrorAreLookedAtHoweverManyThereAre) {
  std::vector<HostQp> qps;
  for (int i = 0; i < 400; ++i) {
    qps.push_back(host_.create_qp());
    ASSERT_TRUE(host_.to_init(qps.back()) && host_.to_error(qps.back()));
  }
  host_.run();
  // Some go, some come back to life.
  for (int i = 0; i < 400; i += 4) host_.destroy(qps[i]);
  for (int i = 1; i < 400; i += 4) ASSERT_TRUE(host_.to_reset(qps[i]));
  for (int i = 2; i < 400; ++i) {
    if (i % 4 >= 2) host_.post_receive(qps[i], host_.allocate(64, 64), 64);
  }
  std::size_t flushed = 0;
  for (int turn = 0; turn < 20; ++turn) {
    host_.run(1ms);
    flushed += completions().size();
  }
  EXPECT_EQ(flushed, 200u);
}

TEST_F(RdmaDataPath, ResetDropsWhatIsPostedAndStartsAtZero) {
  auto [a, b] = host_.connected();
  const auto buffer = host_.allocate(64, 64);
  send(a, wqe(a, WqeOpcode::NOP));
  host_.run();
  completions();
  host_.post_receive(b, buffer, 64);
  host_.post_send(b, wqe(b, WqeOpcode::NOP).bytes());
  ASSERT_TRUE(host_.to_reset(a));
  ASSERT_TRUE(host_.to_reset(b));
  host_.run(2ms);
  EXPECT_TRUE(completions().empty()) << "no CQE of a QP after 2RST";
  // Software zeroes the records only now.
  for (auto* qp : {&a, &b}) std::memset(host_.at(qp->record), 0, 8);
  ASSERT_TRUE(host_.to_init(a) && host_.to_init(b));
  ASSERT_TRUE(host_.to_rtr(a, b.qpn) && host_.to_rtr(b, a.qpn));
  ASSERT_TRUE(host_.to_rts(a) && host_.to_rts(b));
  host_.post_receive(b, buffer, 64);
  send(a, wqe(a, WqeOpcode::SEND).inline_data("again"));
  host_.run();
  EXPECT_EQ(host_.text(buffer, 5), "again");
  const auto cqes = completions();
  ASSERT_EQ(cqes.size(), 2u);
  EXPECT_EQ(cqes[0].wqe_counter, 0);
}

TEST_F(RdmaDataPath, DestroyedQpLeavesNothingBehind) {
  auto [a, b] = host_.connected();
  ASSERT_TRUE(host_.to_error(a));
  host_.run();
  send(b, wqe(b, WqeOpcode::SEND).inline_data("to nobody"));
  host_.destroy(a);
  host_.destroy(b);
  host_.run(2ms);
  EXPECT_TRUE(completions().empty());
}

}  // namespace
}  // namespace softhca::connectx
