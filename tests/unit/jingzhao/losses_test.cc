// Queue pairs that lose their context or a CQ: they are checked and fail over several turns
// (JingZhao 3.2.2.2).
#include <gtest/gtest.h>

#include <algorithm>

#include "jingzhao/icm_host.h"
#include "jingzhao/world.h"

namespace softhca::jingzhao::test {
namespace {

using enum hcr_status;

// Checking all QPs of a full table in one turn would delay other guests.
TEST_F(JingzhaoIcm, AFewQueuePairsATurnAreCheckedWhenContextsAreUnmapped) {
  constexpr std::uint32_t kNear = 5, kFar = 3000, kPages = 0xC0;
  const auto page_of = [](std::uint32_t qpn) {
    return kQpTable + std::uint64_t{qpn} * limits::kQpcSize / 4096 * 4096;
  };
  ASSERT_EQ(h.map(1, page_of(kNear), h.bus(RawHost::kQpc), 1), OK);
  ASSERT_EQ(h.map(1, page_of(kFar), h.bus(RawHost::kQpc) + 4096, 1), OK);
  start_up(14, RawHost::kCqc, 1);
  for (const auto qpn : {kNear, kFar}) {
    put_context(qpn, 0);
    ASSERT_EQ(h.with_mailbox(command_opcode::RST2INIT_QPEE, qpn), OK);
  }
  settle();
  h.start(static_cast<std::uint32_t>(command_opcode::UNMAP_ICM),
          {.in_modifier = kPages, .op_modifier = 1, .in_param = kQpTable});
  EXPECT_EQ(h.device.run(now), now);
  EXPECT_EQ(state_of(kNear), rdma::QpState::kError);
  EXPECT_EQ(state_of(kFar), rdma::QpState::kInit) << "in a later turn";
  settle();
  EXPECT_EQ(state_of(kFar), rdma::QpState::kError);
}

// More QPs fail than a turn handles. One that waits is created again, and fails again.
TEST_F(JingzhaoIcm, AQueuePairThatIsCreatedAgainWhileItWaitsToFailHasOneEvent) {
  constexpr std::uint32_t kFirst = 5, kCount = 300, kLast = kFirst + kCount - 1, kCqs = 2;
  ASSERT_EQ(h.map(1, kQpTable, h.bus(RawHost::kQpc), 512 * limits::kQpcSize / 4096), OK);
  start_up(9, RawHost::kMpt, kCqs);
  for (auto qpn = kFirst; qpn <= kLast; ++qpn) {
    put_context(qpn, 0);
    ASSERT_EQ(h.with_mailbox(command_opcode::RST2INIT_QPEE, qpn), OK);
  }
  settle();
  const auto take_back = [&](std::uint32_t cqn) {
    h.start(static_cast<std::uint32_t>(command_opcode::HW2SW_CQ), {.in_modifier = cqn});
    h.device.run(now);
  };
  // No event type is mapped to an EQ.
  const auto events = [&] { return h.device.objects().event_queues->counters().unmapped; };
  take_back(0);
  ASSERT_EQ(state_of(kLast), rdma::QpState::kError);
  ASSERT_EQ(state_of(kFirst), rdma::QpState::kInit) << "it waits to fail";
  ASSERT_TRUE(queue_pairs().to_reset(Qpn(kFirst)));
  create_qp(kFirst, 1);
  take_back(1);
  settle();
  EXPECT_EQ(state_of(kFirst), rdma::QpState::kError);
  EXPECT_EQ(events(), kCount);
}

// Failing a queue pair takes about 1,000 units.
TEST_F(JingzhaoIcm, ATurnFailsNoMoreQueuePairsThanItsWorkAllows) {
  constexpr std::uint32_t kFirst = 5, kCount = 300;
  constexpr std::int64_t kFailWork = 1000;
  ASSERT_EQ(h.map(1, kQpTable, h.bus(RawHost::kQpc), 512 * limits::kQpcSize / 4096), OK);
  start_up(9, RawHost::kMpt, 1);
  for (std::uint32_t i = 0; i != kCount; ++i) create_qp(kFirst + i, 0);
  settle();
  const auto begin = h.device.work_done();
  h.start(static_cast<std::uint32_t>(command_opcode::HW2SW_CQ), {});
  std::int64_t longest = 0;
  for (bool waits = false; !waits;) {
    const auto before = h.device.work_done();
    waits = h.device.run(now) > now;
    longest = std::max(longest, h.device.work_done() - before);
  }
  EXPECT_LE(longest, pcie::Function::kRunWork + 32 * kFailWork);
  EXPECT_GE(h.device.work_done() - begin, kCount * kFailWork);
  EXPECT_EQ(h.device.objects().event_queues->counters().unmapped, kCount);
}

/// Two queue pairs whose numbers the first turns after a loss do not check. Their contexts are at
/// the beginning of the host's ICM.
class JingzhaoLosses : public JingzhaoIcm {
 protected:
  static constexpr std::uint32_t kFirst = 12000, kSecond = kFirst + 1, kCqs = 3;

  JingzhaoLosses() {
    EXPECT_EQ(map_contexts(), OK);
    start_up(14, RawHost::kCqc, kCqs);
  }
  static constexpr std::uint64_t kContexts = kQpTable + std::uint64_t{kFirst} * limits::kQpcSize;
  static_assert(kContexts % 4096 == 0);

  hcr_status map_contexts() { return h.map(1, kContexts, h.bus(RawHost::kQpc), 1); }
  /// Starts a command with mailboxes, or without, and runs a single turn.
  void in_one_turn(command_opcode op, RawHost::Call call) {
    call.out_param = h.out.iova;
    h.start(static_cast<std::uint32_t>(op), call);
    h.device.run(now);
  }
};

TEST_F(JingzhaoLosses, AQueuePairFailsThoughItsContextIsMappedAgainBeforeItIsChecked) {
  create_qp(kFirst, 0);
  create_qp(kSecond, 0);
  settle();
  in_one_turn(command_opcode::UNMAP_ICM,
              {.in_modifier = 1024, .op_modifier = 1, .in_param = kQpTable});
  h.clear_mailbox();
  h.put64(0x10, kContexts);
  h.put64(0x18, h.bus(RawHost::kQpc) | 1);
  in_one_turn(command_opcode::MAP_ICM, {.in_modifier = 1, .op_modifier = 1, .in_param = h.in.iova});
  ASSERT_EQ(state_of(kFirst), rdma::QpState::kInit) << "it is not checked yet";
  ASSERT_TRUE(queue_pairs().to_reset(Qpn(kSecond)));
  create_qp(kSecond, 0);
  settle();
  EXPECT_EQ(state_of(kFirst), rdma::QpState::kError);
  EXPECT_EQ(state_of(kSecond), rdma::QpState::kInit) << "its context is in the new memory";
}

TEST_F(JingzhaoLosses, AQueuePairFailsThoughItsCqIsInstalledAgainBeforeItIsChecked) {
  create_qp(kFirst, 1);
  create_qp(kSecond, 0);
  settle();
  in_one_turn(command_opcode::HW2SW_CQ, {.in_modifier = 1});
  h.clear_mailbox();
  in_one_turn(command_opcode::SW2HW_CQ, {.in_modifier = 1, .in_param = h.in.iova});
  ASSERT_EQ(state_of(kFirst), rdma::QpState::kInit) << "it is not checked yet";
  settle();
  EXPECT_EQ(state_of(kFirst), rdma::QpState::kError);
  EXPECT_EQ(state_of(kSecond), rdma::QpState::kInit);
}

// In host memory, software moves a queue pair to a CQ that was lost and installed again. Then
// another CQ is lost.
TEST_F(JingzhaoLosses, ALossCountsOnceForAllQueuePairs) {
  create_qp(kSecond, 0);
  settle();
  in_one_turn(command_opcode::HW2SW_CQ, {.in_modifier = 1});
  settle();
  h.clear_mailbox();
  in_one_turn(command_opcode::SW2HW_CQ, {.in_modifier = 1, .in_param = h.in.iova});
  util::Struct<qp_context> moved;
  describe(moved, kSecond, 1);
  std::ranges::copy(moved.bytes(), h.icm.bytes.begin() + limits::kQpcSize);
  ASSERT_EQ(map_contexts(), OK);
  util::Struct<qp_context> queried;
  ASSERT_TRUE(queue_pairs().query(Qpn(kSecond), queried));
  ASSERT_EQ(queried.get(qp_context::cqn_snd), 1u);
  in_one_turn(command_opcode::HW2SW_CQ, {.in_modifier = 2});
  settle();
  EXPECT_EQ(state_of(kSecond), rdma::QpState::kInit);
}

// A CQ may fail while frames arrive. Then reads of the HCR may run HW2SW_CQ, SW2HW_CQ and RST2INIT
// before the device has a turn, in which it fails the queue pairs of the CQ.
TEST_F(JingzhaoLosses, AFailedCqFailsNoQueuePairOfTheNextCqWithItsNumber) {
  constexpr Cqn kCqn(1);
  create_qp(kSecond, kCqn.value());
  settle();
  auto& cqs = *h.device.objects().completion_queues;
  EXPECT_FALSE(cqs.write(kCqn, [](const auto&) {})) << "it has no memory";
  ASSERT_TRUE(cqs.has_failed());
  ASSERT_TRUE(cqs.remove(kCqn));
  queue_pairs().lose_cq(kCqn);
  const util::Struct<spec::jingzhao::cq_context> context;
  ASSERT_TRUE(cqs.install(kCqn, util::View<spec::jingzhao::cq_context>(context.bytes())));
  create_qp(kFirst, kCqn.value());
  settle();
  EXPECT_EQ(state_of(kSecond), rdma::QpState::kError);
  EXPECT_EQ(state_of(kFirst), rdma::QpState::kInit);
}

}  // namespace
}  // namespace softhca::jingzhao::test
