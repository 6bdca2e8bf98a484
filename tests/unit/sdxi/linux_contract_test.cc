// What the public Linux driver does with a function, step by step, as facts about its register and
// memory accesses: it must find here what it expects of hardware.
#include <gtest/gtest.h>

#include "sdxi/machine.h"

namespace softhca::sdxi::test {
namespace {

using reg = spec::mmio_register;
using spec::cxtv;
using spec::fn_gsr;
using spec::fn_gsv;

class LinuxContractTest : public ::testing::Test {
 protected:
  /// Its activation: MMIO_CTL0 is cleared first, there is no error log, context 0 is jump started
  /// with a doorbell of 0.
  void probe() {
    m_.write(reg::MMIO_CTL0, 0);
    ASSERT_EQ(m_.gsv(), fn_gsv::GSV_STOP);
    m_.make_tables();
    m_.make_context(0, 1024);
    m_.set_state(m_.context(0), cxtv::CXTV_RUN);
    m_.request(fn_gsr::GSRV_ACTIVE);
    m_.run();
    ASSERT_EQ(m_.gsv(), fn_gsv::GSV_ACTIVE);
    m_.doorbell(0, 0);
    m_.run();
  }
  FunctionGroup group_;
  Machine m_{group_};
};

TEST_F(LinuxContractTest, ContextsStartAfterAnL1EntryAppearsWithoutAnUpdateOperation) {
  probe();
  EXPECT_TRUE(m_.admin(sync(spec::sync_filter::SYNC_CXT, 1, 1)).done);
  auto& c = m_.make_context(1, 1024);
  EXPECT_FALSE(m_.admin(start(1, 1)).er);
  EXPECT_EQ(m_.state(c), cxtv::CXTV_RUN);
}

// A fenced copy in atomic completion mode, then a fenced interrupt by the same AKey; both were
// reserved long before their valid bits are set, and a later reservation may become valid first.
TEST_F(LinuxContractTest, ReservedDescriptorsBecomeValidLateAndOutOfOrder) {
  probe();
  auto& c = m_.start_context(1, 1024);
  m_.akey(c, 0).set(spec::akey_ent::iv, 1);
  m_.akey(c, 0).set(spec::akey_ent::intr_num, 5);
  const auto from = m_.allocate(4096), to = m_.allocate(2 * 4096);
  m_.fill(from, 4096, 1);
  const auto reserve = [&](Descriptor d) {
    header(d).set(spec::dsc_header::vl, 0);
    header(d).set(spec::dsc_header::csr, 0);
    header(d).set(spec::dsc_header::fe, 1);
    return m_.push(c, d);
  };
  std::array<std::uint64_t, 4> slots{};
  std::array<Iova, 2> blocks{};
  for (unsigned i = 0; i < 2; ++i) {
    auto d = copy(from, to + i * 4096, 4096);
    blocks[i] = m_.attach_completion(d);
    slots[2 * i] = reserve(d);
    slots[2 * i + 1] = reserve(interrupt(0));
  }
  const auto publish = [&](unsigned first) {
    for (unsigned i = first; i < first + 2; ++i) {
      m_.at<spec::dsc_header>(m_.slot(c, slots[i])).set(spec::dsc_header::vl, 1);
    }
    m_.doorbell(1, slots[first + 1] + 1);
    m_.run();
  };
  publish(2);
  EXPECT_EQ(m_.interrupts(5), 0u);
  publish(0);  // with a smaller doorbell value than before
  EXPECT_EQ(m_.interrupts(5), 2u);
  for (const auto block : blocks) EXPECT_EQ(m_.signal(block), 0u);
  EXPECT_TRUE(m_.equal(from, to + 4096, 4096));
  EXPECT_EQ(m_.read_index(c), 4u);
}

TEST_F(LinuxContractTest, AContextIsStoppedTwiceItsEntryClearedAndMadeAnew) {
  probe();
  for (int round = 0; round < 3; ++round) {
    auto& c = m_.start_context(1, 1024);
    EXPECT_TRUE(m_.execute(c, nop()).done);
    for (int twice = 0; twice < 2; ++twice) {
      m_.submit(m_.context(0), stop(1, 1));
      EXPECT_TRUE(m_.admin(sync(spec::sync_filter::SYNC_STOP, 1, 1)).done);
      EXPECT_EQ(m_.state(c), cxtv::CXTV_STOP_SW);
    }
    std::memset(m_.host(c.l1), 0, 32);
  }
}

TEST_F(LinuxContractTest, RemovalStopsTheFunctionAndASecondProbeWorks) {
  probe();
  m_.request(fn_gsr::GSRV_STOP_SF);
  m_.run();
  EXPECT_EQ(m_.gsv(), fn_gsv::GSV_STOP);
  probe();
  EXPECT_TRUE(m_.admin(sync(spec::sync_filter::SYNC_FN)).done);
}

// A crash left the function active: the cleared MMIO_CTL0 is an error there, which a reset ends.
TEST_F(LinuxContractTest, AnActiveFunctionIsRecoveredThroughError) {
  probe();
  m_.write(reg::MMIO_CTL0, 0);
  EXPECT_EQ(m_.gsv(), fn_gsv::GSV_ERROR);
  m_.request(fn_gsr::GSRV_RESET);
  EXPECT_EQ(m_.gsv(), fn_gsv::GSV_STOP);
  probe();
}

}  // namespace
}  // namespace softhca::sdxi::test
