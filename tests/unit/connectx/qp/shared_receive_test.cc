// Receives from a shared queue, the RMP (PRM 7.10, mlx5 driver interface 8.5).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>

#include "connectx/qp/data_path.h"
#include "spec/connectx/raw_queues.h"
#include "util/log.h"

namespace softhca::connectx {
namespace {

using namespace std::chrono_literals;
using test::EventType;
using test::kKey;
using test::RdmaDataPath;
using test::RdmaTestHost;
using Command_ = test::Opcode;
using WqeOpcode = spec::connectx::wqe_opcode;
using State = spec::connectx::qp_state;
using Status = spec::connectx::command_status;

/// Here, `wq` alone would name the structure.
constexpr auto kWqField = spec::connectx::rmp_context::wq;

class RdmaSharedReceive : public RdmaDataPath {
 protected:
  static constexpr unsigned kCount = 8;
  static constexpr auto kReady = static_cast<std::uint32_t>(spec::connectx::rmp_state::RDY);

  RdmaSharedReceive() {
    buffers_ = host_.allocate(kCount * 64);
    for (unsigned i = 0; i < kCount; ++i) write(i, (i + 1) % kCount);
  }
  void write(unsigned index, unsigned next) {
    auto* bytes = host_.at(rmp_.ring + 64 * index);
    util::store_be32(bytes, next);
    util::store_be32(bytes + 16, 64);
    util::store_be32(bytes + 20, kKey);
    util::store_be64(bytes + 24, buffers_ + 64 * index);
    util::store_be32(bytes + 32, 0);
    util::store_be32(bytes + 36, 0x100);
  }
  void post(std::uint16_t count) {
    posted_ = static_cast<std::uint16_t>(posted_ + count);
    util::store_be32(host_.at(rmp_.record), posted_);
  }
  void arm(std::uint32_t limit) {
    using namespace spec::connectx;
    EXPECT_TRUE((host_.call<modify_rmp_out, modify_rmp_in>(Command_::MODIFY_RMP, [&](auto in) {
      in.set(modify_rmp_in::rmpn, rmp_.rmpn);
      in.set(modify_rmp_in::rmp_state, kReady);
      in.sub(modify_rmp_in::rmp_context).set(rmp_context::state, kReady);
      in.sub(modify_rmp_in::modify_bitmask).set(rmp_bitmask::lwm, 1);
      in.sub(modify_rmp_in::rmp_context).sub(kWqField).set(wq::lwm, limit);
    })));
  }

  Status take_from(test::HostQp& qp, std::uint32_t rmpn) {
    constexpr auto kSrqn = 1u << static_cast<unsigned>(spec::connectx::qp_opt_param_bit::SRQN);
    return host_
        .modify(qp, Command_::RTS2RTS_QP, kSrqn,
                [rmpn](auto context) { context.set(test::qpc::srqn_rmpn_xrqn, rmpn); })
        .status();
  }
  Status destroy(const test::HostRmp& rmp) {
    using namespace spec::connectx;
    return host_
        .call<destroy_rmp_out, destroy_rmp_in>(
            Command_::DESTROY_RMP, [&](auto in) { in.set(destroy_rmp_in::rmpn, rmp.rmpn); })
        .status();
  }

  pcie::Iova buffers_ = 0;
  test::HostRmp rmp_ = host_.create_rmp(3);
  std::uint16_t posted_ = 0;
};

TEST_F(RdmaSharedReceive, CqesReportTheIndexInTheSharedQueue) {
  auto [a, b] = host_.connected({.srqn = rmp_.rmpn});
  write(0, 5);
  write(5, 1);
  post(3);
  for (int i = 0; i < 3; ++i) send(a, wqe(a, WqeOpcode::SEND).unsignaled().inline_data("abc"));
  host_.run();
  const auto cqes = completions();
  ASSERT_EQ(cqes.size(), 3u);
  EXPECT_EQ(cqes[0].wqe_counter, 0);
  EXPECT_EQ(cqes[1].wqe_counter, 5);
  EXPECT_EQ(cqes[2].wqe_counter, 1);
  EXPECT_EQ(cqes[0].user_index, rmp_.rmpn) << "version 0: drivers look for the SRQ";
  EXPECT_EQ(host_.text(buffers_ + 5 * 64, 3), "abc");
}

TEST_F(RdmaSharedReceive, VersionOneReportsTheUserIndex) {
  auto [a, b] = host_.connected({.srqn = rmp_.rmpn, .user_index = 0x321});
  post(1);
  send(a, wqe(a, WqeOpcode::SEND).unsignaled().inline_data("abc"));
  host_.run();
  const auto cqes = completions();
  ASSERT_EQ(cqes.size(), 1u);
  EXPECT_EQ(cqes[0].user_index, 0x321u);
}

TEST_F(RdmaSharedReceive, LimitEventComesOnce) {
  auto [a, b] = host_.connected({.srqn = rmp_.rmpn});
  post(4);
  arm(3);
  EXPECT_THAT(events(), ::testing::Not(::testing::Contains(EventType::SRQ_LIMIT)));
  for (int i = 0; i < 3; ++i) send(a, wqe(a, WqeOpcode::SEND).unsignaled().inline_data("abc"));
  host_.run();
  const auto seen = events();
  EXPECT_EQ(std::count(seen.begin(), seen.end(), EventType::SRQ_LIMIT), 1);
}

TEST_F(RdmaSharedReceive, ErrorLeavesTheSharedQueueAndReportsTheLastWqe) {
  auto [a, b] = host_.connected({.srqn = rmp_.rmpn});
  post(4);
  ASSERT_TRUE(host_.to_error(b));
  host_.run(2ms);
  EXPECT_TRUE(completions().empty()) << "the WQEs belong to the others too";
  EXPECT_THAT(events(), ::testing::Contains(EventType::LAST_WQE_REACHED));
}

TEST_F(RdmaSharedReceive, BrokenListIsCatastrophic) {
  auto [a, b] = host_.connected({.srqn = rmp_.rmpn});
  write(0, kCount);
  post(1);
  send(a, wqe(a, WqeOpcode::SEND).unsignaled().inline_data("abc"));
  host_.run();
  const auto seen = events();
  EXPECT_THAT(seen, ::testing::IsSupersetOf({EventType::LOCAL_SRQ_CATASTROPHIC_ERROR,
                                             EventType::LOCAL_WQ_CATASTROPHIC_ERROR}));
  EXPECT_EQ(host_.query_state(b), state(State::ERR));
}

// UCX's rc_mlx5 makes its RMPs this way (UCX_RC_MLX5_SRQ_TOPO=cyclic, the default).
TEST_F(RdmaSharedReceive, CqesOfACyclicQueueReportTheCounter) {
  rmp_ = host_.create_rmp(3, spec::connectx::wq_type::CYCLIC);
  for (unsigned i = 0; i < kCount; ++i) write(i, 0);
  auto [a, b] = host_.connected({.srqn = rmp_.rmpn});
  for (unsigned i = 0; i < 2 * kCount + 1; ++i) {
    post(1);
    const auto text = std::string(1, static_cast<char>('a' + i));
    send(a, wqe(a, WqeOpcode::SEND).unsignaled().inline_data(text));
    host_.run();
    const auto cqes = completions();
    ASSERT_EQ(cqes.size(), 1u);
    EXPECT_EQ(cqes[0].wqe_counter, i) << "not its place in the ring";
    EXPECT_EQ(host_.text(buffers_ + 64 * (i % kCount), 1), text);
  }
}

TEST_F(RdmaSharedReceive, ACyclicQueueThatIsEmptyWaitsForTheRecord) {
  rmp_ = host_.create_rmp(3, spec::connectx::wq_type::CYCLIC);
  for (unsigned i = 0; i < kCount; ++i) write(i, 0);
  auto [a, b] = host_.connected({.srqn = rmp_.rmpn});
  send(a, wqe(a, WqeOpcode::SEND).unsignaled().inline_data("abc"));
  host_.run();
  EXPECT_TRUE(completions().empty());
  post(1);
  host_.run(10ms);
  EXPECT_EQ(completions().size(), 1u);
}

TEST_F(RdmaSharedReceive, ACyclicQueueWhoseCounterIsPastItIsCatastrophic) {
  rmp_ = host_.create_rmp(3, spec::connectx::wq_type::CYCLIC);
  auto [a, b] = host_.connected({.srqn = rmp_.rmpn});
  post(kCount + 1);
  send(a, wqe(a, WqeOpcode::SEND).unsignaled().inline_data("abc"));
  host_.run();
  EXPECT_THAT(events(), ::testing::IsSupersetOf({EventType::LOCAL_SRQ_CATASTROPHIC_ERROR,
                                                 EventType::LOCAL_WQ_CATASTROPHIC_ERROR}));
  EXPECT_EQ(host_.query_state(b), state(State::ERR));
}

// Its WQE is in the PD of the old queue, which could then be another context's.
TEST_F(RdmaSharedReceive, AMessageEndsBeforeItsQpTakesFromAnotherQueue) {
  const auto second = host_.create_rmp(3);
  auto [a, b] = host_.connected({.srqn = rmp_.rmpn});
  util::store_be32(host_.at(rmp_.ring + 16), 4096);
  util::store_be64(host_.at(rmp_.ring + 24), host_.allocate(4096));
  post(1);
  send(a, wqe(a, WqeOpcode::SEND).unsignaled().data(host_.allocate(3000), 3000, kKey));
  host_.device.run(host_.now);
  host_.network.deliver(1);
  ASSERT_TRUE(host_.network.has_work()) << "the last packet";
  EXPECT_EQ(take_from(b, second.rmpn), Status::BAD_RESOURCE_STATE);
  EXPECT_EQ(take_from(b, rmp_.rmpn), Status::OK) << "it is the same";
  EXPECT_EQ(destroy(rmp_), Status::BAD_RES_STATE);
  host_.run();
  const auto cqes = completions();
  ASSERT_EQ(cqes.size(), 1u);
  EXPECT_EQ(cqes[0].byte_count, 3000u);
  EXPECT_EQ(cqes[0].user_index, rmp_.rmpn);
  for (auto* const qp : {&a, &b}) EXPECT_EQ(take_from(*qp, second.rmpn), Status::OK);
  EXPECT_EQ(destroy(rmp_), Status::OK);
}

// A message that is dropped leaves its receive WQE to the next one.
TEST_F(RdmaSharedReceive, AWqeOfADroppedMessageIsFlushedBeforeItsQpTakesFromAnotherQueue) {
  auto [a, b] = host_.connected({.service = test::Service::UC, .srqn = rmp_.rmpn});
  post(1);
  send(a, wqe(a, WqeOpcode::SEND).unsignaled().data(host_.allocate(100), 100, kKey));
  host_.run();
  EXPECT_TRUE(completions().empty()) << "the buffer has 64 bytes";
  const auto first = std::exchange(rmp_, host_.create_rmp(3));
  EXPECT_EQ(take_from(b, rmp_.rmpn), Status::OK);
  auto cqes = completions();
  ASSERT_EQ(cqes.size(), 1u);
  EXPECT_EQ(cqes[0].opcode, test::CqeOpcode::RESPONDER_ERROR);
  EXPECT_EQ(cqes[0].syndrome, test::Syndrome::WORK_REQUEST_FLUSHED_ERROR);
  EXPECT_EQ(cqes[0].user_index, first.rmpn);
  EXPECT_EQ(take_from(a, rmp_.rmpn), Status::OK);
  EXPECT_EQ(destroy(first), Status::OK);
  write(0, 1);
  posted_ = 0;
  post(1);
  send(a, wqe(a, WqeOpcode::SEND).unsignaled().inline_data("abc"));
  host_.run();
  cqes = completions();
  ASSERT_EQ(cqes.size(), 1u);
  EXPECT_EQ(cqes[0].user_index, rmp_.rmpn);
  EXPECT_EQ(host_.query_state(b), state(State::RTS));
}

// A guest can make and break any number of lists.
TEST_F(RdmaSharedReceive, BrokenListsDoNotFloodTheLog) {
  std::vector<std::string> lines;
  util::set_log_sink([&](util::LogLevel, std::string_view text) { lines.emplace_back(text); });
  for (int i = 0; i < 30; ++i) {
    rmp_ = host_.create_rmp(3);
    write(0, kCount);
    auto [a, b] = host_.connected({.srqn = rmp_.rmpn});
    util::store_be32(host_.at(rmp_.record), 1);
    send(a, wqe(a, WqeOpcode::SEND).unsignaled().inline_data("abc"));
    host_.run();
    EXPECT_THAT(events(), ::testing::Contains(EventType::LOCAL_SRQ_CATASTROPHIC_ERROR));
    completions();
    host_.destroy(a);
    host_.destroy(b);
  }
  util::set_log_sink({});
  const auto told = std::ranges::count_if(lines, [](const auto& line) {
    return line.starts_with("connectx0: SRQ") && line.find("next_wqe_index") != std::string::npos;
  });
  EXPECT_GE(told, 1) << "with the device's name";
  EXPECT_LE(told, 20);
}

}  // namespace
}  // namespace softhca::connectx
