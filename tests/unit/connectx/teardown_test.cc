// An earlier driver's objects are destroyed in steps. A turn stays short for any number of objects,
// and the device keeps responding.
#include <gtest/gtest.h>

#include <array>

#include "connectx/qp/rdma_test_host.h"
#include "pcie/bus_master.h"
#include "spec/connectx/hca.h"
#include "spec/connectx/init_segment.h"

namespace softhca::connectx::test {
namespace {

using spec::connectx::create_qp_in;
using spec::connectx::create_qp_out;
using spec::connectx::init_segment;
using spec::connectx::nop_in;
using spec::connectx::nop_out;
using spec::connectx::teardown_hca_in;
using spec::connectx::teardown_hca_out;

constexpr unsigned kQps = 500;
/// Work that one object, or another step of the device, may do beyond the budget of a turn.
constexpr std::int64_t kTeardownBeyond = 50'000;

class Teardown : public ::testing::Test {
 protected:
  Teardown() {
    const auto qp = host_.allocate_qp({});
    const auto size = qp.send_offset() + (std::size_t{64} << qp.options.log_sq);
    for (unsigned i = 0; i != kQps; ++i) {
      const auto made = host_.call<create_qp_out, create_qp_in>(
          Opcode::CREATE_QP, [&](auto in) { host_.fill_create(in, qp); },
          FakeHost::page_list(qp.ring, size));
      EXPECT_TRUE(made) << made.reason();
    }
  }
  bool initializing() {
    constexpr auto field = init_segment::initializing;
    return (host_.read32(field.kOffset) >> field.kLo & 1) != 0;
  }
  /// Number of turns until nothing of earlier drivers is left. Checks that none far exceeds its
  /// budget.
  unsigned turns() {
    unsigned turns = 0;
    while (host_.device.driver().has_remains() && turns < 10'000) {
      const auto before = host_.device.work_done();
      const auto next = host_.device.run(host_.now, kTurn);
      if (host_.device.driver().has_remains()) {
        EXPECT_LE(next, host_.now) << "there is more to do";
      }
      EXPECT_LE(host_.device.work_done() - before, kTurn + kTeardownBeyond);
      ++turns;
    }
    return turns;
  }

  RdmaTestHost host_;
};

TEST_F(Teardown, AnFlrOfManyObjectsTakesManyTurns) {
  host_.device.reset();
  EXPECT_GE(turns(), 5u);
  EXPECT_EQ(host_.device.driver().rdma().find_qp(Qpn(0x40)), nullptr);
}

TEST_F(Teardown, TheFunctionAnswersWhileItIsUnderWay) {
  const auto counter = [&] { return host_.read32(init_segment::health_counter.kOffset); };
  EXPECT_FALSE(initializing());
  host_.device.reset();
  std::array<std::byte, 2> vendor{};
  host_.device.read_config(0, vendor);
  EXPECT_EQ(vendor[0], std::byte{0xB3});
  const auto before = counter();
  host_.advance(std::chrono::milliseconds(20));
  EXPECT_NE(counter(), before) << "its health";
  EXPECT_TRUE(initializing()) << "PRM 8.2, step 3: drivers wait";
  turns();
  EXPECT_FALSE(initializing());
}

TEST_F(Teardown, TheFunctionHasNothingOfTheEarlierDriverFromTheFirstMoment) {
  host_.device.reset();
  EXPECT_EQ(host_.device.driver().rdma().find_qp(Qpn(0x40)), nullptr);
  EXPECT_EQ(host_.device.driver().resources().pds().count(), 0u);
}

TEST_F(Teardown, ResetsOneAfterTheOtherLeaveNoMoreThanOne) {
  for (int i = 0; i < 100; ++i) host_.device.reset();
  const auto before = host_.device.work_done();
  const auto all = turns();
  EXPECT_LE(host_.device.work_done() - before, all * (kTurn + kTeardownBeyond));
  host_.device.reset();
  EXPECT_LE(turns(), all / 2 + 1) << "what was just made is less than what a driver made";
}

TEST_F(Teardown, NoCommandIsExecutedBeforeAllIsGone) {
  Input<teardown_hca_in> in(Opcode::TEARDOWN_HCA);
  ASSERT_TRUE((host_.execute<teardown_hca_out>(in)));
  ASSERT_TRUE(host_.device.driver().has_remains()) << "the command is done, the work is not";
  Input<nop_in> nop(Opcode::NOP);
  (void)host_.prepare(1, nop.bytes(), nop_out::kSize);
  host_.ring_commands(1u << 1);
  host_.device.run(host_.now, kTurn);
  EXPECT_EQ(host_.slot(1).get(FakeHost::Entry::ownership), 1u);
  turns();
  host_.run();
  EXPECT_EQ(host_.slot(1).get(FakeHost::Entry::ownership), 0u);
}

TEST_F(Teardown, TheNextDriverFindsADeviceAsNew) {
  host_.device.reset();
  pcie::set_bus_master(host_.device, true);
  host_.initialize();
  EXPECT_NE(host_.allocate_pd(), 0u);
  EXPECT_FALSE(host_.device.driver().has_remains());
}

}  // namespace
}  // namespace softhca::connectx::test
