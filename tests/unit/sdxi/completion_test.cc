// SDXI 4.4, 5.3: the end of a descriptor: completion status block and Read_Index.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "sdxi/machine.h"

namespace softhca::sdxi::test {
namespace {

using ent = spec::errlog_hd_ent;
using spec::cxtv;
using hdr = spec::dsc_header;

class CompletionTest : public ::testing::Test {
 protected:
  CompletionTest() {
    m_.activate();
    c_ = m_.start_context(5);
  }
  FunctionGroup group_;
  Machine m_{group_};
  Machine::Context c_;
};

// D-147
TEST_F(CompletionTest, WithNpTheCompletionBlockIsNotAccessed) {
  auto d = nop();
  const auto block = m_.attach_completion(d, 7);
  footer(d).set(spec::dsc_footer::np, 1);
  m_.submit(c_, d);
  m_.run();
  EXPECT_EQ(m_.signal(block), 7u);
}

// D-148
TEST_F(CompletionTest, SuccessPreservesEr) {
  auto d = nop();
  const auto block = m_.attach_completion(d);
  m_.at<spec::cst_blk>(block).set(spec::cst_blk::er, 1);
  m_.submit(c_, d);
  m_.run();
  EXPECT_EQ(m_.signal(block), 0u);
  EXPECT_TRUE(m_.er(block));
}

// D-150
TEST_F(CompletionTest, AnErrorWithNpStopsAndLogs) {
  auto d = copy(0x1000, 0x2000, 8);
  const auto block = m_.attach_completion(d);
  footer(d).set(spec::dsc_footer::np, 1);
  m_.submit(c_, d);
  m_.run();
  EXPECT_EQ(m_.state(c_), cxtv::CXTV_ERR_FN);
  EXPECT_EQ(m_.records(), 1u);
  EXPECT_EQ(m_.signal(block), 1u) << "csb_ptr means nothing";
  EXPECT_FALSE(m_.er(block));
}

// D-151
TEST_F(CompletionTest, ASignalThatCannotBeUpdatedStopsTheContext) {
  auto d = nop();
  footer(d).set(spec::dsc_footer::np, 0);
  spec::set_address(footer(d), spec::dsc_footer::csb_ptr, 0x1000);
  m_.submit(c_, d);
  m_.run();
  EXPECT_EQ(m_.state(c_), cxtv::CXTV_ERR_FN);
  EXPECT_EQ(m_.record(0).get(ent::step), 8u);
  EXPECT_EQ(m_.record(0).get(ent::sub_step), 1u);
}

// D-031 D-152
TEST_F(CompletionTest, AtomicModeDecrementsASharedSignalAndWraps) {
  auto d = nop();
  header(d).set(hdr::csr, 0);
  const auto block = m_.attach_completion(d, 3);
  for (std::uint64_t left : {2ull, 1ull, 0ull, ~0ull}) {
    m_.submit(c_, d);
    m_.run();
    EXPECT_EQ(m_.signal(block), left);
  }
}

// D-152: another agent decrements the same signal. A non-atomic update would lose some decrements.
TEST_F(CompletionTest, AtomicModeLosesNoDecrementOfOthers) {
  constexpr std::uint64_t kDescriptors = 50000;
  auto& c = m_.start_context(6, 1000);
  auto d = nop();
  header(d).set(hdr::csr, 0);
  const auto block = m_.attach_completion(d, 0);
  auto* signal = reinterpret_cast<std::uint64_t*>(m_.host(block));
  std::atomic<bool> ended = false;
  std::uint64_t others = 0;
  std::thread other([&] {
    for (; !ended; ++others) __atomic_fetch_sub(signal, 1, __ATOMIC_RELAXED);
  });
  while (m_.read_index(c) < kDescriptors) {
    while (m_.write_index(c) < std::min(m_.read_index(c) + 1000, kDescriptors)) m_.push(c, d);
    m_.doorbell(6, m_.write_index(c));
    m_.run();
  }
  ended = true;
  other.join();
  EXPECT_EQ(m_.signal(block), 0 - kDescriptors - others);
}

// D-153 D-154 D-031
TEST_F(CompletionTest, SimpleModeEndsAtZeroWhateverTheStart) {
  for (const std::uint64_t initial : {1ull, 5ull, 0ull}) {
    auto d = nop();
    const auto block = m_.attach_completion(d, initial);
    m_.submit(c_, d);
    m_.run();
    EXPECT_EQ(m_.signal(block), 0u);
  }
  EXPECT_EQ(m_.records(), 0u);
}

TEST_F(CompletionTest, AFunctionWithAtomicCapabilityOnlyUsesItForSimpleModeToo) {
  FunctionGroup group;
  Machine m(group, {.capabilities = {.cs_cap = spec::cs_cap::CS_ATOMIC}});
  m.activate();
  auto& c = m.start_context(1);
  EXPECT_TRUE(m.execute(c, nop()).done);
}

// D-155 D-031
TEST_F(CompletionTest, AtomicModeOnANonAtomicFunctionIsRefused) {
  FunctionGroup group;
  Machine m(group, {.capabilities = {.cs_cap = spec::cs_cap::CS_NON_ATOMIC}});
  m.activate();
  auto& c = m.start_context(1);
  auto d = nop();
  EXPECT_TRUE(m.execute(c, d).done);
  header(d).set(hdr::csr, 0);
  m.submit(c, d);
  m.run();
  EXPECT_EQ(m.state(c), cxtv::CXTV_ERR_FN);
  EXPECT_EQ(m.record(0).get(ent::step), 7u);
}

// SDXI 4.3.5: the stop that follows cannot serialize Read_Index either, so the function ends.
// Read_Index is written at the end of a turn and before an interrupt; on failure no interrupt is
// raised.
TEST(ReadIndexTest, AReadIndexThatCannotBeWrittenHaltsTheFunction) {
  for (const bool interrupts : {false, true}) {
    FunctionGroup group;
    Machine m(group, {}, nullptr, Machine::Memory::kTraced);
    m.activate();
    auto& c = m.start_context(1);
    auto d = nop();
    const auto block = m.attach_completion(d);
    m.trace.refuse_writes_at = c.sts + spec::cxt_sts::read_index.kOffset;
    m.push(c, d);
    if (interrupts) m.push(c, interrupt(1));
    m.doorbell(1, m.write_index(c));
    m.run();
    EXPECT_EQ(m.signal(block), 0u) << "it had completed";
    EXPECT_EQ(m.interrupts(1), 0u);
    EXPECT_EQ(m.gsv(), spec::fn_gsv::GSV_ERROR);
    EXPECT_EQ(m.state(c), cxtv::CXTV_STOPG_FN);
    ASSERT_EQ(m.records(), 2u);
    EXPECT_EQ(m.record(0).get(ent::step), 5u);  // ERRV_CXT_STS
    EXPECT_EQ(m.record(0).get(ent::cxt_num), 1u);
    EXPECT_EQ(m.record(1).get(ent::re), 2u);
  }
}

}  // namespace
}  // namespace softhca::sdxi::test
