// Bounds on one run(), independent of what software requests: the functions of a server share a
// thread.
#include "sdxi/budget.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "sdxi/machine.h"

namespace softhca::sdxi::test {
namespace {

using spec::admin_subtype;
using spec::cxtv;
using spec::fn_gsr;
using spec::fn_gsv;

/// The maximum memory accesses of one run(), measured until the function is idle.
std::size_t most_accesses(Machine& m) {
  std::size_t most = 0;
  for (bool more = true; more;) {
    m.trace.accesses.clear();
    more = m.step_further();
    most = std::max(most, m.trace.accesses.size());
  }
  return most;
}

/// Thousands of signaled contexts, in memory that counts accesses.
class CrowdTest : public ::testing::Test {
 protected:
  static constexpr ContextNumber kContexts = 3000;
  CrowdTest() {
    m_.activate();
    for (ContextNumber i = 1; i <= kContexts; ++i) {
      auto& c = m_.make_context(i, 1, cxtv::CXTV_RUN);
      m_.submit(c, nop());
    }
    m_.run(100000);
  }
  FunctionGroup group_;
  Machine m_{group_, {.capabilities = {.max_cxt = 0xffff}}, nullptr, Machine::Memory::kTraced};
};

TEST_F(CrowdTest, AnUpdateOfTheFunctionIsWorkedOffInPieces) {
  for (const auto& d :
       {make(spec::dsc_type::ADMIN_GRP, admin_subtype::DSC_FN_UPD), update_contexts(0, 0xffff)}) {
    m_.submit(m_.context(0), d);
    EXPECT_LT(most_accesses(m_), 200u);
  }
  // The operation is complete when it reports completion.
  for (ContextNumber i = 1; i <= kContexts; ++i) {
    m_.at<spec::cxt_l1_ent>(m_.context(i).l1).set(spec::cxt_l1_ent::max_buffer, 0);
  }
  m_.submit(m_.context(0), make(spec::dsc_type::ADMIN_GRP, admin_subtype::DSC_FN_UPD));
  EXPECT_TRUE(m_.admin(sync(spec::sync_filter::SYNC_FN)).done);
  for (ContextNumber i = 1; i <= kContexts; i += 100) {
    EXPECT_TRUE(m_.execute(m_.context(i), copy(0x1000, 0x2000, 3u << 20)).er);
    EXPECT_EQ(m_.record(m_.records() - 1).get(spec::errlog_hd_ent::err_class), 0x2310u);
  }
}

TEST_F(CrowdTest, AStopOfTheFunctionIsWorkedOffInPieces) {
  m_.request(fn_gsr::GSRV_STOP_SF);
  EXPECT_LT(most_accesses(m_), 2000u);
  EXPECT_EQ(m_.gsv(), fn_gsv::GSV_STOP);
  for (ContextNumber i = 1; i <= kContexts; ++i) {
    ASSERT_EQ(m_.state(m_.context(i)), cxtv::CXTV_STOP_FN) << i;
  }
}

TEST_F(CrowdTest, AStartAndAStopOfAllContextsAreWorkedOffInPieces) {
  m_.submit(m_.context(0), stop(1, 0xffff));
  m_.submit(m_.context(0), sync(spec::sync_filter::SYNC_STOP, 0, 0xffff));
  m_.submit(m_.context(0), start(1, kContexts, spec::kDoorbellFromWriteIndex));
  EXPECT_LT(most_accesses(m_), 200u);
  for (ContextNumber i = 1; i <= kContexts; ++i) {
    ASSERT_EQ(m_.state(m_.context(i)), cxtv::CXTV_RUN) << i;
  }
}

// Tables in local memory cost work as well. Every context number of the range counts, valid or not.
TEST(BudgetTest, AnOperationOnAllContextsTakesManyRuns) {
  FunctionGroup group;
  Machine m(group, {.capabilities = {.max_cxt = 0xffff}});
  m.activate();
  for (const auto& d :
       {stop(1, 0xffff), start(1, 0xffff, std::nullopt, admin_subtype::DSC_CXT_START_RS)}) {
    m.submit(m.context(0), d);
    const auto end = m.write_index(m.context(0));
    unsigned runs = 0;
    for (; runs < 1000 && m.read_index(m.context(0)) < end; ++runs) m.step();
    EXPECT_GE(runs, 0xffff * 1024u / m.device->options().run_bytes);
    EXPECT_LT(runs, 1000u);
  }
}

// Each access to memory behind a peer is a request message and its response.
TEST(BudgetTest, ARunMakesFewAccessesThroughAPeer) {
  FunctionGroup group;
  Machine m(group, {}, nullptr, Machine::Memory::kTraced);
  m.activate();
  const auto from = m.allocate(1 << 20), to = m.allocate(1 << 20);
  for (ContextNumber i = 1; i <= 8; ++i) {
    auto& c = m.start_context(i, 64);
    for (int k = 0; k < 60; ++k) {
      auto d = k == 59 ? copy(from, to, 1 << 20) : nop();
      m.attach_completion(d);
      m.push(c, d);
    }
    m.doorbell(i, 60);
  }
  EXPECT_LT(most_accesses(m), 100u);
  for (ContextNumber i = 1; i <= 8; ++i) EXPECT_EQ(m.read_index(m.context(i)), 60u);
}

// Each is a system call, which may wake a thread.
TEST(BudgetTest, ARunRaisesFewInterrupts) {
  constexpr unsigned kContexts = 4, kEach = 60;
  FunctionGroup group;
  Machine m(group);
  m.activate();
  for (ContextNumber i = 1; i <= kContexts; ++i) {
    auto& c = m.start_context(i, 64);
    for (unsigned k = 0; k != kEach; ++k) m.push(c, interrupt(1));
  }
  for (ContextNumber i = 1; i <= kContexts; ++i) m.doorbell(i, kEach);
  const auto& options = m.device->options();
  const auto most = (options.run_bytes + options.turn_bytes) / kInterruptCost + 1;
  const auto work = m.device->work_done();
  for (bool more = true; more;) {
    const auto before = m.interrupts(1);
    more = m.step_further();
    EXPECT_LE(m.interrupts(1) - before, static_cast<std::uint64_t>(most));
  }
  EXPECT_EQ(m.interrupts(1), kContexts * kEach);
  EXPECT_GE(m.device->work_done() - work, kContexts * kEach * kInterruptCost / kBytesPerUnit);
}

// Copies: a run() may exceed its budget by one context's turn.
TEST(BudgetTest, ARunCopiesAMebibyteAtMost) {
  FunctionGroup group;
  Machine m(group);
  m.activate();
  constexpr std::uint64_t kSize = 8u << 20;
  const auto from = m.allocate(kSize), to = m.allocate(kSize);
  for (ContextNumber i = 1; i <= 8; ++i) m.start_context(i);
  for (ContextNumber i = 1; i <= 8; ++i) m.submit(m.context(i), copy(from, to, kSize));
  const auto bytes = [&m] { return m.device->contexts().statistics().bytes; };
  for (bool more = true; more;) {
    const auto before = bytes();
    more = m.step_further();
    EXPECT_LE(bytes() - before, (1u << 20) + m.device->options().turn_bytes);
  }
}

TEST(BudgetTest, CopiesArePaidFromTheLoopsBudget) {
  FunctionGroup group;
  Machine m(group);
  m.activate();
  constexpr std::uint64_t kSize = 8u << 20;
  constexpr std::int64_t kAllowed = 1000;
  const auto from = m.allocate(kSize), to = m.allocate(kSize);
  m.start_context(1);
  m.submit(m.context(1), copy(from, to, kSize));
  const auto before = m.device->work_done();
  for (int i = 1; i <= 100; ++i) {
    EXPECT_EQ(m.device->run(m.now(), kAllowed), m.now()) << "there is more to copy, or to pay";
    // A context's turn can be cut, too; a descriptor cannot.
    EXPECT_LE(m.device->work_done() - before,
              i * kAllowed + m.device->options().descriptor_bytes / 8);
  }
  EXPECT_LE(m.device->contexts().statistics().bytes, 100 * kAllowed * 8 + 1024);
  m.run();
  EXPECT_GE(m.device->work_done() - before, std::int64_t{kSize} / 8);
}

// A context whose turn was cut continues before any other.
TEST(BudgetTest, ContextsShareEquallyHoweverTheirTurnsAreCut) {
  FunctionGroup group;
  Machine m(group);
  m.activate();
  constexpr std::uint64_t kSize = 8u << 20;
  const auto from = m.allocate(kSize), to = m.allocate(kSize);
  for (ContextNumber i = 1; i <= 3; ++i) m.start_context(i);
  for (ContextNumber i = 1; i <= 3; ++i) m.submit(m.context(i), copy(from, to, kSize));
  // Slightly more than a turn, so that each run() cuts one.
  const std::int64_t allowed = m.device->options().turn_bytes / 8 * 5 / 4;
  for (int i = 0; i < 60; ++i) (void)m.device->run(m.now(), allowed);
  std::vector<std::uint64_t> bytes;
  m.device->contexts().for_each([&bytes](const Context& context) {
    if (context.entry.number != 0) bytes.push_back(context.bytes);
  });
  ASSERT_EQ(bytes.size(), 3u);
  const auto [least, most] = std::ranges::minmax(bytes);
  EXPECT_LE(most - least, m.device->options().turn_bytes + 4096u);
  EXPECT_GT(least, 4u << 20);
}

// The budget of the run() cuts a turn, wherever the turns begin.
TEST(BudgetTest, ACutTurnHasNoMoreThanItsRest) {
  FunctionGroup group;
  Machine m(group);
  m.activate();
  constexpr std::uint64_t kSize = 8u << 20;
  const auto from = m.allocate(kSize), to = m.allocate(kSize);
  for (ContextNumber i = 1; i <= 2; ++i) m.start_context(i);
  for (ContextNumber i = 1; i <= 2; ++i) m.submit(m.context(i), copy(from, to, kSize));
  const auto bytes_of = [&](ContextNumber number) {
    std::uint64_t found = 0;
    m.device->contexts().for_each([&](const Context& context) {
      if (context.entry.number == number) found = context.bytes;
    });
    return found;
  };
  // Eight pieces make one turn; the next turn belongs to the other context.
  const std::int64_t piece = m.device->options().turn_bytes / 8 / 8;
  for (int i = 0; i < 8; ++i) {
    (void)m.device->run(m.now(), piece);
    EXPECT_EQ(bytes_of(2), 0u) << i;
  }
  for (int i = 0; i < 2; ++i) (void)m.device->run(m.now(), piece);
  EXPECT_GT(bytes_of(2), 0u);
  EXPECT_LE(bytes_of(1), m.device->options().turn_bytes + 4096u);
}

// Software stops as many contexts as it has, and all may have a long copy outstanding.
TEST(BudgetTest, SoftStopsThatTimeOutAreWorkedOffInPieces) {
  constexpr ContextNumber kContexts = 200;
  constexpr std::uint64_t kMost = 64, kSize = 16u << 20;
  FunctionGroup group;
  Machine m(group, {.capabilities = {.max_cxt = kContexts}, .turn_bytes = 4096});
  m.activate();
  const auto from = m.allocate(kSize), to = m.allocate(kSize);
  for (ContextNumber i = 1; i <= kContexts; ++i) {
    m.submit(m.make_context(i, 1, cxtv::CXTV_RUN), copy(from, to, kSize));
  }
  for (int i = 0; i != 10; ++i) m.step();
  m.submit(m.context(0), stop(1, kContexts));
  const auto end = m.write_index(m.context(0));
  for (int i = 0; i != 1000 && m.read_index(m.context(0)) < end; ++i) m.step();
  m.step();  // the time begins
  for (ContextNumber i = 1; i <= kContexts; ++i) {
    ASSERT_EQ(m.state(m.context(i)), cxtv::CXTV_STOPG_SW) << i;
  }
  m.advance(m.device->options().soft_stop_timeout);
  const auto aborted = [&m] { return m.device->contexts().statistics().errors; };
  for (bool more = true; more;) {
    const auto before = aborted();
    more = m.step_further();
    EXPECT_LE(aborted() - before, kMost);
  }
  EXPECT_EQ(aborted(), kContexts);
}

TEST(BudgetTest, AStopOfTheFunctionIsPaid) {
  FunctionGroup group;
  Machine m(group, {.capabilities = {.max_cxt = 1000}});
  m.activate();
  const auto before = m.device->work_done();
  m.request(fn_gsr::GSRV_STOP_SF);
  m.run();
  EXPECT_EQ(m.gsv(), fn_gsv::GSV_STOP);
  EXPECT_GE(m.device->work_done() - before, 1000 * 1024 / 8) << "each context is looked at";
}

}  // namespace
}  // namespace softhca::sdxi::test
