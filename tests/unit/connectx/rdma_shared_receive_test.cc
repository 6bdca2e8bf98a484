// Receives from a shared queue, the RMP (PRM 7.10, mlx5 driver interface 8.5).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "connectx/rdma_data_path.h"
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

  pcie::Iova buffers_ = 0;
  test::HostRmp rmp_ = host_.create_rmp(3);
  std::uint16_t posted_ = 0;
};

TEST_F(RdmaSharedReceive, CqesTellTheIndexInTheSharedQueue) {
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

TEST_F(RdmaSharedReceive, VersionOneTellsTheUserIndex) {
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

TEST_F(RdmaSharedReceive, ErrorLeavesTheSharedQueueAndTellsTheLastWqe) {
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
TEST_F(RdmaSharedReceive, CqesOfACyclicQueueTellTheCounter) {
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
