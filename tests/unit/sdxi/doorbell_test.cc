// SDXI 4.3.3: doorbells of software and of DSC_CXT_START, and their evaluation.
#include <gtest/gtest.h>

#include "sdxi/machine.h"

namespace softhca::sdxi::test {
namespace {

using spec::admin_subtype;
using spec::cxtv;
using spec::fn_gsr;
using spec::fn_gsv;

class DoorbellTest : public ::testing::Test {
 protected:
  DoorbellTest() { m_.activate(); }
  static Descriptor start_rs(std::uint32_t first, std::uint32_t last, std::uint64_t doorbell) {
    return start(first, last, doorbell, admin_subtype::DSC_CXT_START_RS);
  }
  FunctionGroup group_;
  Machine m_{group_};
};

// D-129. Step 4 ignores values up to earlier *valid* ones. A value above Write_Index is not valid
// (SDXI 4.2.4.1), so it must not suppress later doorbells.
TEST_F(DoorbellTest, ADoorbellAboveWriteIndexHidesNoLaterOne) {
  auto& c = m_.start_context(4);
  m_.push(c, nop());
  m_.doorbell(4, 1000);
  m_.run();
  EXPECT_EQ(m_.read_index(c), 1u);
  m_.push(c, nop());
  m_.doorbell(4, 2);
  m_.run();
  EXPECT_EQ(m_.read_index(c), 2u);
}

TEST_F(DoorbellTest, ADoorbellOfAllOnesHidesNoLaterOne) {
  auto& c = m_.start_context(4);
  m_.doorbell(4, ~std::uint64_t{0});
  m_.run();
  m_.submit(c, nop());
  m_.run();
  EXPECT_EQ(m_.read_index(c), 1u);
}

TEST_F(DoorbellTest, AStartsValueAboveWriteIndexHidesNoLaterDoorbell) {
  auto& c = m_.make_context(4);
  EXPECT_TRUE(m_.admin(start(4, 4, 1000)).done);
  m_.submit(c, nop());
  m_.run();
  EXPECT_EQ(m_.read_index(c), 1u);
}

// SDXI 6.6.3: the range may include context 0, whose ring is then examined while the device
// executes it.
TEST_F(DoorbellTest, AStartMaySignalTheContextThatExecutesIt) {
  auto& c = m_.start_context(4);
  auto& admin = m_.context(0);
  const auto before = m_.read_index(admin);
  m_.push(admin, start_rs(0, 127, 1000000));
  m_.push(admin, start_rs(0, 127, 1000000));
  m_.doorbell(0, m_.write_index(admin));
  m_.run();
  EXPECT_EQ(m_.read_index(admin), before + 2);
  EXPECT_EQ(m_.state(admin), cxtv::CXTV_RUN);
  m_.submit(c, nop());
  m_.run();
  EXPECT_EQ(m_.read_index(c), 1u);
  EXPECT_TRUE(m_.admin(sync(spec::sync_filter::SYNC_FN)).done);
  m_.request(fn_gsr::GSRV_STOP_SF);
  m_.run();
  EXPECT_EQ(m_.gsv(), fn_gsv::GSV_STOP);
}

// The same while other contexts wait for their turns: none of them is lost.
TEST_F(DoorbellTest, AStartThatSignalsItsOwnContextForgetsNoOther) {
  std::vector<Machine::Context> others;
  for (ContextNumber i = 1; i < 8; ++i) others.push_back(m_.start_context(i));
  for (const auto& c : others) m_.push(c, nop());
  auto& admin = m_.context(0);
  m_.push(admin, start_rs(0, 127, 1000000));
  m_.push(admin, start_rs(0, 127, 1000000));
  m_.doorbell(0, m_.write_index(admin));
  m_.run();
  for (const auto& c : others) EXPECT_EQ(m_.read_index(c), 1u) << c.number;
  m_.device->reset();
  m_.power_on();
  m_.activate();
  auto& again = m_.start_context(3);
  m_.submit(again, nop());
  m_.run();
  EXPECT_EQ(m_.read_index(again), 1u);
}

// A doorbell for a context that already waits for its turn. Neither it nor the others lose their
// places.
TEST_F(DoorbellTest, ADoorbellOfAContextThatWaitsForItsTurnForgetsNoOther) {
  constexpr std::uint64_t kSize = 1u << 20;
  const auto from = m_.allocate(kSize), to = m_.allocate(kSize);
  for (ContextNumber i = 1; i <= 8; ++i) m_.start_context(i);
  for (ContextNumber i = 1; i <= 8; ++i) m_.submit(m_.context(i), copy(from, to, kSize));
  for (int step = 0; step < 4; ++step) {
    m_.step();
    for (ContextNumber i = 1; i <= 8; ++i) m_.doorbell(i, 1);
  }
  m_.run();
  for (ContextNumber i = 1; i <= 8; ++i) {
    EXPECT_EQ(m_.read_index(m_.context(i)), 1u) << i;
  }
}

// A guest may ring all doorbells, and start all contexts in one operation. Each run() handles part
// of that.
TEST_F(DoorbellTest, DoorbellsAreEvaluatedWithinTheBudgetOfARun) {
  constexpr ContextNumber kLast = 40000;
  FunctionGroup group;
  Machine m(group, {.capabilities = {.max_cxt = kLast}, .run_bytes = 256 << 10}, nullptr,
            Machine::Memory::kTraced);
  m.activate();
  auto& c = m.start_context(kLast);
  m.push(c, nop());
  const auto most_accesses = [&m] {
    std::size_t most = 0;
    for (bool more = true; more;) {
      m.trace.accesses.clear();
      const auto next = m.step();
      more = next <= m.now();
      most = std::max(most, m.trace.accesses.size());
    }
    return most;
  };
  for (ContextNumber i = 0; i <= kLast; ++i) m.doorbell(i, 1);
  EXPECT_LT(most_accesses(), 2000u);
  EXPECT_EQ(m.read_index(c), 1u);
  m.push(c, nop());
  m.submit(m.context(0), start_rs(0, kLast, spec::kDoorbellFromWriteIndex));
  EXPECT_LT(most_accesses(), 2000u);
  EXPECT_EQ(m.read_index(c), 2u);
}

}  // namespace
}  // namespace softhca::sdxi::test
