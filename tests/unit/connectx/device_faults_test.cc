// Faults that a user injects into the device: health, removal, commands, interrupts, CQs.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "connectx/base/resources.h"
#include "connectx/event/event_queue.h"
#include "connectx/event/queue_host.h"
#include "connectx/fault_rules.h"
#include "spec/connectx/cqe.h"
#include "spec/connectx/hca.h"
#include "spec/connectx/init_segment.h"
#include "spec/connectx/resources.h"

namespace softhca::connectx {
namespace {

namespace s = spec::connectx;
using Buffer = s::health_buffer;
using Opcode = FakeHost::Opcode;
using Code = s::command_status;

constexpr std::uint64_t kBuffer = s::init_segment::health_buffer.kOffset;
constexpr std::uint64_t kCounter = s::init_segment::health_counter.kOffset;

class DeviceFaults : public QueueTest {
 protected:
  Reply query_pages() {
    Input<s::query_pages_in> in(Opcode::QUERY_PAGES, 1);
    return host.execute<s::query_pages_out>(in);
  }
  /// Posts QUERY_PAGES in a slot, without waiting for it.
  void post(unsigned slot) {
    Input<s::query_pages_in> in(Opcode::QUERY_PAGES, 1);
    host.prepare(slot, in.bytes(), s::query_pages_out::kSize);
    host.ring_commands(1u << slot);
    host.run();
  }
  bool is_done(unsigned slot) { return host.slot(slot).get(FakeHost::Entry::ownership) == 0; }
  bool counter_moves() {
    const auto before = host.read32(kCounter);
    host.advance(std::chrono::seconds(1));
    return host.read32(kCounter) != before;
  }
  bool asks_for_recovery() { return (host.read32(kBuffer + Buffer::rfr.kOffset) >> 31) != 0; }
  std::uint16_t vendor_id() {
    std::array<std::byte, 2> bytes{};
    host.device.read_config(0, bytes);
    return static_cast<std::uint16_t>(std::to_integer<unsigned>(bytes[0]) |
                                      std::to_integer<unsigned>(bytes[1]) << 8);
  }

  FaultRules rules{host.device};
};

// The device as a whole ---------------------------------------------------------------------------

TEST_F(DeviceFaults, AnInternalErrorShowsItsSyndromeAndStopsTheCounter) {
  EXPECT_TRUE(counter_moves());
  const auto rule = rules.add("do=internal-error,syndrome=HIGH_TEMP_ERR");
  EXPECT_EQ(rules.at(rule).fired, 1u);
  EXPECT_EQ(health(), 0x10u);
  EXPECT_TRUE(asks_for_recovery());
  EXPECT_FALSE(counter_moves());
  EXPECT_NE(host.read32(0x230), 0xFFFF'FFFFu) << "it is still on the bus";
}

TEST_F(DeviceFaults, ABrokenDeviceEndsNoCommandUntilADriverStartsAgain) {
  rules.add("do=internal-error");
  EXPECT_EQ(health(), 0x01u) << "FW_INTERNAL_ERR";
  post(0);
  EXPECT_FALSE(is_done(0));
  EXPECT_GT(host.device.run(host.now), host.now) << "it waits for its driver, and not in a loop";
  EXPECT_EQ(host.read32(0x1FC) >> 31, 0u) << "a driver may start again";
  host.initialize();
  EXPECT_EQ(health(), 0u);
  EXPECT_FALSE(asks_for_recovery());
  EXPECT_TRUE(counter_moves());
  EXPECT_TRUE(query_pages().ok());
}

// Linux recovers so (mlx5 health): it asks for the reset, waits until the interface is disabled,
// and then for a counter that moves.
TEST_F(DeviceFaults, ASoftwareResetEndsAnInternalError) {
  EXPECT_EQ(host.read32(0x1FC) >> 30, 1u) << "the reset is offered, and the device is ready";
  rules.add("do=internal-error");
  post(0);
  EXPECT_FALSE(is_done(0));
  constexpr auto kInterface = s::init_segment::nic_interface.kOffset;
  const auto low = host.read32(kInterface);
  host.write32(kInterface, low | 0x700);
  EXPECT_EQ(host.read32(kInterface), low | 0x100) << "disabled";
  EXPECT_EQ(health(), 0u);
  EXPECT_FALSE(asks_for_recovery());
  EXPECT_TRUE(counter_moves());
  host.run();
  EXPECT_FALSE(is_done(0)) << "the driver has given its commands up";
  host.initialize();
  EXPECT_TRUE(query_pages().ok());
}

TEST_F(DeviceFaults, AResetEndsAnInternalError) {
  rules.add("do=internal-error");
  host.device.reset();
  EXPECT_EQ(host.read32(kCounter) >> 24, 0u);
  EXPECT_TRUE(counter_moves());
}

TEST_F(DeviceFaults, AnInternalErrorCanWaitForACommand) {
  const auto rule = rules.add("opcode=QUERY_PAGES,nth=2,do=internal-error");
  EXPECT_TRUE(query_pages().ok());
  EXPECT_EQ(health(), 0u);
  post(0);
  EXPECT_FALSE(is_done(0));
  EXPECT_EQ(health(), 0x01u);
  EXPECT_EQ(rules.at(rule).fired, 1u);
}

TEST_F(DeviceFaults, ARemovedFunctionReadsAsOnes) {
  EXPECT_EQ(vendor_id(), 0x15b3u);
  const auto rule = rules.add("do=remove");
  EXPECT_EQ(vendor_id(), 0xFFFFu);
  EXPECT_EQ(host.read32(0), 0xFFFF'FFFFu);
  EXPECT_EQ(host.read32(0x230), 0xFFFF'FFFFu);
  EXPECT_EQ(host.read32(kCounter), 0xFFFF'FFFFu);
  post(0);
  EXPECT_FALSE(is_done(0));
  host.device.reset();
  EXPECT_EQ(host.read32(0), 0xFFFF'FFFFu) << "a reset does not bring it back";
  rules.remove(rule);
  EXPECT_EQ(vendor_id(), 0x15b3u);
  EXPECT_NE(host.read32(0), 0xFFFF'FFFFu);
  EXPECT_EQ(host.device.driver().state(), HcaState::kDisabled) << "it comes back reset";
}

TEST_F(DeviceFaults, AFunctionIsAbsentUntilTheLastRuleThatRemovesItIsRemoved) {
  const auto first = rules.add("do=remove");
  const auto second = rules.add("do=remove");
  rules.add("function=another,do=remove");
  rules.remove(first);
  EXPECT_EQ(vendor_id(), 0xFFFFu);
  rules.remove(second);
  EXPECT_EQ(vendor_id(), 0x15b3u);
}

TEST_F(DeviceFaults, ARemovalCanWaitForACommand) {
  rules.add("opcode=QUERY_PAGES,do=remove");
  post(0);
  EXPECT_FALSE(is_done(0));
  EXPECT_EQ(vendor_id(), 0xFFFFu);
}

TEST_F(DeviceFaults, ARemovedFunctionRaisesNoInterruptAndWritesNothing) {
  make_cq();
  arm_eq(0);
  arm_cq(0);
  rules.add("do=remove");
  arm_cq(0);
  eq_doorbell(0x40, 0, host.uar);
  host.run();
  EXPECT_EQ(host.interrupts(2), 0u);
  EXPECT_FALSE(host.device.config().may_send_requests());
}

TEST_F(DeviceFaults, ARuleForAnotherFunctionHasNoEffect) {
  const auto rule = rules.add("function=other,do=remove");
  EXPECT_EQ(vendor_id(), 0x15b3u);
  EXPECT_EQ(rules.at(rule).matched, 0u);
}

// Commands ----------------------------------------------------------------------------------------

TEST_F(DeviceFaults, ACommandEndsWithTheStatusOfTheRule) {
  const auto rule = rules.add("opcode=ALLOC_PD,nth=2,do=fail-command,status=NO_RESOURCES");
  const auto allocate = [&] {
    Input<s::alloc_pd_in> in(Opcode::ALLOC_PD);
    return host.execute<s::alloc_pd_out>(in);
  };
  EXPECT_TRUE(allocate().ok());
  const auto before = host.device.driver().resources().pds().count();
  const auto failed = allocate();
  EXPECT_EQ(failed.status(), Code::NO_RESOURCES);
  EXPECT_EQ(failed.reason(), "a fault rule of the user makes the command fail");
  EXPECT_EQ(host.device.driver().resources().pds().count(), before) << "it was not executed";
  EXPECT_TRUE(allocate().ok());
  EXPECT_TRUE(query_pages().ok());
  EXPECT_EQ(rules.at(rule).matched, 3u);
  EXPECT_EQ(rules.at(rule).fired, 1u);
}

TEST_F(DeviceFaults, ACommandEndsWithTheSyndromeOfTheRule) {
  // It is one of the device's own, so that `softhca explain` knows it.
  const auto syndrome = syndrome_of("PRM Table 55", "unknown PD");
  rules.add("do=fail-command,status=BAD_RESOURCE,syndrome=" + std::to_string(syndrome));
  post(2);
  ASSERT_TRUE(is_done(2));
  const auto reply = host.collect(2, s::query_pages_out::kSize, {});
  EXPECT_EQ(reply.status(), Code::BAD_RESOURCE);
  EXPECT_EQ(reply.syndrome(), syndrome);
}

TEST_F(DeviceFaults, AHangingCommandEndsWhenTheRuleIsRemovedAndOthersGoOn) {
  const auto rule = rules.add("opcode=QUERY_PAGES,do=hang-command");
  post(3);
  host.advance(std::chrono::hours(1));
  host.run();
  EXPECT_FALSE(is_done(3));
  EXPECT_NE(host.allocate_pd(), 0u);
  EXPECT_FALSE(is_done(3));
  rules.remove(rule);
  host.run();
  EXPECT_TRUE(is_done(3));
}

TEST_F(DeviceFaults, ANewDriverGetsNoAnswerToCommandsOfTheLastOne) {
  const auto rule = rules.add("opcode=QUERY_PAGES,do=hang-command");
  post(3);
  host.start_queue();
  host.run();
  Input<s::query_pages_in> in(Opcode::QUERY_PAGES, 1);
  host.prepare(3, in.bytes(), s::query_pages_out::kSize);
  rules.remove(rule);
  host.run();
  EXPECT_FALSE(is_done(3)) << "the new driver has not rung";
}

// Interrupts and CQs ------------------------------------------------------------------------------

TEST_F(DeviceFaults, ALostInterruptLeavesTheEvent) {
  make_cq();
  arm_eq(0);
  arm_cq(0);
  const auto rule = rules.add("nth=1,do=lose-interrupt");
  EXPECT_TRUE(complete());
  EXPECT_EQ(events(), 1u);
  EXPECT_EQ(host.interrupts(2), 0u);
  arm_cq(1);
  EXPECT_TRUE(complete());
  EXPECT_EQ(host.interrupts(2), 0u) << "the EQ is not armed";
  arm_eq(1);
  EXPECT_EQ(host.interrupts(2), 1u);
  EXPECT_EQ(rules.at(rule).fired, 1u);
}

TEST_F(DeviceFaults, AnInterruptIsLostForOneCqAlone) {
  make_cq();
  arm_eq(0);
  arm_cq(0);
  rules.add("cq=" + std::to_string(cqn + 1) + ",do=lose-interrupt");
  EXPECT_TRUE(complete());
  EXPECT_EQ(host.interrupts(2), 1u);
  rules.add("cq=" + std::to_string(cqn) + ",do=lose-interrupt");
  arm_eq(1);
  arm_cq(1);
  EXPECT_TRUE(complete());
  EXPECT_EQ(events(), 2u);
  EXPECT_EQ(host.interrupts(2), 1u);
}

TEST_F(DeviceFaults, AStalledCqGoesOnWhenTheRuleIsRemoved) {
  make_cq();
  arm_eq(0);
  arm_cq(0);
  const auto rule = rules.add("nth=2,do=stall-cq");
  const auto mark = [&](unsigned index) { return host.at(cq + 64 * index)[1]; };
  EXPECT_TRUE(complete(false, std::byte{1}));
  EXPECT_EQ(mark(0), std::byte{1});
  arm_cq(1);
  EXPECT_TRUE(complete(false, std::byte{2}));
  EXPECT_TRUE(complete(false, std::byte{3}));
  EXPECT_EQ(events(), 1u);
  EXPECT_EQ(mark(1), std::byte{0});
  rules.remove(rule);
  EXPECT_EQ(mark(1), std::byte{2});
  EXPECT_EQ(mark(2), std::byte{3});
  EXPECT_EQ(events(), 2u);
  EXPECT_TRUE(complete(false, std::byte{4}));
  EXPECT_EQ(mark(3), std::byte{4});
}

TEST_F(DeviceFaults, AStalledCqOverrunsWhenMoreWaitsThanItHolds) {
  make_cq(1);
  rules.add("do=stall-cq");
  EXPECT_TRUE(complete());
  EXPECT_TRUE(complete());
  EXPECT_FALSE(complete());
  EXPECT_TRUE(host.device.driver().completion_queues().find(Cqn(cqn))->failed());
}

TEST_F(DeviceFaults, AllCqsTogetherHoldBackALimitedNumberOfCqes) {
  constexpr unsigned kHeldMax = 1 << 16;
  const auto fill = [&] {
    make_cq(15);
    unsigned held = 0;
    while (held != 1u << 15 && complete()) ++held;
    return held;
  };
  const auto rule = rules.add("do=stall-cq");
  EXPECT_EQ(fill(), kHeldMax / 2);
  const auto first = cqn;
  EXPECT_EQ(fill(), kHeldMax / 2);
  EXPECT_EQ(fill(), 0u);
  EXPECT_TRUE(host.device.driver().completion_queues().find(Cqn(cqn))->failed());
  host.device.driver().completion_queues().destroy(Cqn(first));
  EXPECT_EQ(fill(), kHeldMax / 2) << "a CQ that goes makes room";
  rules.remove(rule);
  rules.add("do=stall-cq");
  EXPECT_EQ(fill(), kHeldMax / 2) << "so do CQs that go on";
}

TEST_F(DeviceFaults, ANewCqFollowsTheRulesThatExist) {
  rules.add("do=stall-cq");
  make_cq();
  EXPECT_TRUE(complete(false, std::byte{7}));
  EXPECT_EQ(host.at(cq)[1], std::byte{0});
}

}  // namespace
}  // namespace softhca::connectx
