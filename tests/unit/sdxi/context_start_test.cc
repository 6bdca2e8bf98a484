// SDXI 4.3, 6.6: starting and stopping contexts.
#include <gtest/gtest.h>

#include "sdxi/context_machine.h"

namespace softhca::sdxi::test {
namespace {

using ent = spec::errlog_hd_ent;
using spec::cxtv;
using spec::fn_gsr;
using spec::fn_gsv;

// D-078 D-128
TEST_F(ContextTest, AStoppedContextIgnoresDoorbells) {
  auto& c = m_.start_context(4);
  m_.submit(c, nop());
  m_.run();
  m_.admin(stop(4, 4));
  m_.submit(c, nop());
  m_.run();
  EXPECT_EQ(m_.read_index(c), 1u);
  EXPECT_TRUE(m_.valid(c, 1));
  EXPECT_EQ(m_.records(), 0u);
}

// D-074 D-087 D-094
TEST_F(ContextTest, StartNmStartsFromBothStopStatesAndRun) {
  auto& c = m_.make_context(4);
  for (const auto state : {cxtv::CXTV_STOP_SW, cxtv::CXTV_STOP_FN, cxtv::CXTV_RUN}) {
    m_.set_state(c, state);
    EXPECT_FALSE(m_.admin(start(4, 4)).er);
    EXPECT_EQ(m_.state(c), cxtv::CXTV_RUN);
  }
}

// D-088
TEST_F(ContextTest, StartNmOfAContextInErrorFailsAndLeavesTheState) {
  auto& c = m_.make_context(4, 16, cxtv::CXTV_ERR_FN);
  const auto outcome = m_.admin(start(4, 4));
  EXPECT_TRUE(outcome.done);
  EXPECT_TRUE(outcome.er);
  EXPECT_EQ(m_.state(c), cxtv::CXTV_ERR_FN);
  ASSERT_EQ(m_.records(), 1u);
  EXPECT_EQ(m_.record(0).get(ent::target_step), 5u);
  EXPECT_EQ(m_.record(0).get(ent::target_cxt_num), 4u);
  EXPECT_EQ(m_.state(m_.context(0)), cxtv::CXTV_ERR_FN);
}

// D-088 D-084
TEST_F(ContextTest, StartNmOfAnInvalidContextFails) {
  m_.make_context(4);
  EXPECT_TRUE(m_.admin(start(4, 5)).er);
  ASSERT_EQ(m_.records(), 1u);
  EXPECT_EQ(m_.record(0).get(ent::cxt_num), 0u) << "the context that stopped";
  EXPECT_EQ(m_.record(0).get(ent::target_valid), 1u);
  EXPECT_EQ(m_.record(0).get(ent::target_cxt_num), 5u) << "the one of the range that failed";
}

// D-089
TEST_F(ContextTest, StartRsStartsStopFnAndSkipsTheRestSilently) {
  const std::array states{cxtv::CXTV_STOP_FN, cxtv::CXTV_STOP_SW, cxtv::CXTV_ERR_FN,
                          cxtv::CXTV_RUN};
  for (ContextNumber i = 0; i < states.size(); ++i) m_.make_context(4 + i, 16, states[i]);
  const auto outcome = m_.admin(start_rs(2, 9));  // 2, 3, 8 and 9 are invalid
  EXPECT_TRUE(outcome.done);
  EXPECT_FALSE(outcome.er);
  EXPECT_EQ(m_.state(m_.context(4)), cxtv::CXTV_RUN);
  EXPECT_EQ(m_.state(m_.context(5)), cxtv::CXTV_STOP_SW);
  EXPECT_EQ(m_.state(m_.context(6)), cxtv::CXTV_ERR_FN);
  EXPECT_EQ(m_.state(m_.context(7)), cxtv::CXTV_RUN);
  EXPECT_EQ(m_.records(), 0u);
}

// D-084 D-086
TEST_F(ContextTest, ChkValidLogsWhatIsInaccessible) {
  using step = spec::err_step;
  const Iova nowhere = 0x1000;
  std::uint64_t expected = 0;
  const auto fails = [&](step wanted, auto&& spoil) {
    auto& c = m_.make_context(4, 16, cxtv::CXTV_STOP_FN);
    spoil(c);
    EXPECT_TRUE(m_.admin(start_rs(4, 4)).er);  // RS logs only LogErr:Cxt
    ASSERT_EQ(m_.records(), ++expected);
    EXPECT_EQ(m_.record(expected - 1).get(ent::target_step), static_cast<unsigned>(wanted));
    EXPECT_EQ(m_.record(expected - 1).get(ent::target_cxt_num), 4u);
    restart();
  };
  fails(step::ERRV_CXT_CTL, [&](auto& c) {
    spec::set_address(m_.at<spec::cxt_l1_ent>(c.l1), spec::cxt_l1_ent::cxt_ctl_ptr, nowhere);
  });
  fails(step::ERRV_CXT_L1,
        [&](auto& c) { m_.at<spec::cxt_l1_ent>(c.l1).set(spec::cxt_l1_ent::akey_sz, 9); });
  fails(step::ERRV_CXT_CTL,
        [&](auto& c) { m_.at<spec::cxt_ctl>(c.ctl).set(spec::cxt_ctl::ds_ring_sz, 0); });
  fails(step::ERRV_DSC_GEN, [&](auto& c) {
    spec::set_address(m_.at<spec::cxt_ctl>(c.ctl), spec::cxt_ctl::ds_ring_ptr, nowhere);
  });
  fails(step::ERRV_CXT_STS, [&](auto& c) {
    spec::set_address(m_.at<spec::cxt_ctl>(c.ctl), spec::cxt_ctl::cxt_sts_ptr, nowhere);
  });
  fails(step::ERRV_WRT_IDX, [&](auto& c) {
    spec::set_address(m_.at<spec::cxt_ctl>(c.ctl), spec::cxt_ctl::write_index_ptr, nowhere);
  });
  fails(step::ERRV_CXT_STS,
        [&](auto& c) { m_.at<spec::cxt_sts>(c.sts).set(spec::cxt_sts::state, 9); });
  FunctionGroup group;
  Machine other(group, {.capabilities = {.max_cxt = 300}});
  other.activate();
  spec::set_address(other.at<spec::cxt_l2_ent>(other.l2_entry(130)), spec::cxt_l2_ent::lv01_ptr,
                    nowhere & ~0xfffu);
  other.at<spec::cxt_l2_ent>(other.l2_entry(130)).set(spec::cxt_l2_ent::vl, 1);
  EXPECT_TRUE(other.admin(start_rs(130, 130)).er);
  EXPECT_EQ(other.record(0).get(ent::target_step), static_cast<unsigned>(step::ERRV_CXT_L1));
}

// D-086: a running context fails its check, and software changes its state then.
TEST_F(ContextTest, AFailedCheckDropsWhatIsKnownOfTheStatus) {
  auto& c = m_.start_context(4);
  EXPECT_TRUE(m_.execute(c, nop()).done);
  const auto entry = m_.at<spec::cxt_l1_ent>(c.l1);
  entry.set(spec::cxt_l1_ent::vl, 0);
  EXPECT_FALSE(m_.admin(start_rs(4, 4)).er);
  m_.set_state(c, cxtv::CXTV_STOP_SW);
  m_.at<spec::cxt_sts>(c.sts).set(spec::cxt_sts::read_index, 7);
  m_.store64(c.write_index, 7);
  entry.set(spec::cxt_l1_ent::vl, 1);
  EXPECT_FALSE(m_.admin(start_rs(4, 4)).er);
  EXPECT_EQ(m_.state(c), cxtv::CXTV_STOP_SW) << "skipped, for what it is now";
  EXPECT_FALSE(m_.admin(start(4, 4)).er);
  EXPECT_TRUE(m_.execute(c, nop()).done);
  EXPECT_EQ(m_.read_index(c), 8u);
  EXPECT_EQ(m_.records(), 0u);
}

TEST_F(ContextTest, AStartFromAStopThatSoftwareHasWrittenReadsTheStatus) {
  auto& c = m_.start_context(4);
  EXPECT_TRUE(m_.execute(c, nop()).done);
  m_.set_state(c, cxtv::CXTV_STOP_SW);
  m_.at<spec::cxt_sts>(c.sts).set(spec::cxt_sts::read_index, 7);
  m_.store64(c.write_index, 7);
  EXPECT_FALSE(m_.admin(start(4, 4)).er);
  EXPECT_TRUE(m_.execute(c, nop()).done);
  EXPECT_EQ(m_.read_index(c), 8u);
  EXPECT_EQ(m_.records(), 0u);
}

// D-086: the same with a jump start, which uses cached state.
TEST_F(ContextTest, AFailedCheckMakesAJumpStartReadTheStatusAgain) {
  auto& c = m_.start_context(4);
  EXPECT_TRUE(m_.execute(c, nop()).done);
  const auto entry = m_.at<spec::cxt_l1_ent>(c.l1);
  entry.set(spec::cxt_l1_ent::vl, 0);
  EXPECT_FALSE(m_.admin(start_rs(4, 4)).er);
  m_.set_state(c, cxtv::CXTV_RUN);
  m_.at<spec::cxt_sts>(c.sts).set(spec::cxt_sts::read_index, 7);
  m_.store64(c.write_index, 7);
  entry.set(spec::cxt_l1_ent::vl, 1);
  m_.submit(c, nop());
  m_.run();
  EXPECT_EQ(m_.read_index(c), 8u);
}

// D-086: the same with DSC_CXT_STOP, whose check also logs a record.
TEST_F(ContextTest, AFailedCheckOfAStopMakesAJumpStartReadTheStatusAgain) {
  auto& c = m_.start_context(4);
  EXPECT_TRUE(m_.execute(c, nop()).done);
  const auto control = m_.at<spec::cxt_ctl>(c.ctl);
  spec::set_address(control, spec::cxt_ctl::ds_ring_ptr, 0x1000);
  EXPECT_TRUE(m_.admin(stop(4, 4)).er);
  EXPECT_EQ(m_.records(), 1u);
  m_.at<spec::cxt_sts>(c.sts).set(spec::cxt_sts::read_index, 7);
  m_.store64(c.write_index, 7);
  spec::set_address(control, spec::cxt_ctl::ds_ring_ptr, c.ring);
  m_.submit(c, nop());
  m_.run();
  EXPECT_EQ(m_.read_index(c), 8u);
}

// D-090: "issue an atomic write ..., then ensure that the value ... is CXTV_RUN".
TEST_F(ContextTest, AStartWhoseStateIsNotThereAfterwardsFails) {
  for (const bool refused : {true, false}) {
    FunctionGroup group;
    Machine m(group, {}, nullptr, Machine::Memory::kTraced);
    m.activate();
    auto& c = m.make_context(4);
    (refused ? m.trace.refuse_writes_at : m.trace.lose_writes_at) = c.sts;
    EXPECT_TRUE(m.admin(start(4, 4)).er) << refused;
    ASSERT_EQ(m.records(), 1u);
    EXPECT_EQ(m.record(0).get(ent::target_step), 5u);
    EXPECT_EQ(m.state(c), cxtv::CXTV_STOP_SW);
    EXPECT_EQ(m.gsv(), fn_gsv::GSV_ACTIVE);
  }
}

// D-090 D-104: state writes of start and stop, in order, one byte each.
TEST_F(ContextTest, StateIsWrittenBySingleByteAccesses) {
  FunctionGroup group;
  Machine m(group, {}, nullptr, Machine::Memory::kTraced);
  m.activate();
  auto& c = m.make_context(4);
  std::vector<cxtv> states;
  std::vector<unsigned> encodings;
  m.trace.on_write = [&](Iova at) {
    if (at != c.sts) return;
    states.push_back(m.state(c));
    encodings.push_back(static_cast<unsigned>(*m.host(c.sts)) & 0xf);
  };
  EXPECT_FALSE(m.admin(start(4, 4)).er);
  EXPECT_FALSE(m.admin(stop(4, 4)).er);
  EXPECT_EQ(states, (std::vector{cxtv::CXTV_RUN, cxtv::CXTV_STOPG_SW, cxtv::CXTV_STOP_SW}));
  // D-074: with the numbers of Table 3-6.
  EXPECT_FALSE(m.admin(start(4, 4)).er);
  m.request(fn_gsr::GSRV_STOP_SF);
  m.run();
  m.set_state(m.context(0), cxtv::CXTV_RUN);
  m.request(fn_gsr::GSRV_ACTIVE);
  m.run();
  EXPECT_FALSE(m.admin(start_rs(4, 4)).er);
  m.execute(c, copy(0x1000, 0x1000, 8));
  EXPECT_EQ(encodings, (std::vector<unsigned>{1, 2, 0, 1, 6, 4, 1, 6, 15}));
  for (const auto& a : m.trace.accesses) {
    if (a.at == c.sts && a.write) {
      EXPECT_EQ(a.size, 1u);
    }
  }
}

// D-091 D-092
TEST_F(ContextTest, StartWithADoorbellValueRunsTheRingAfterItsCompletion) {
  FunctionGroup group;
  Machine m(group, {}, nullptr, Machine::Memory::kTraced);
  m.activate();
  auto& c = m.make_context(4);
  auto d = nop();
  const auto inner = m.attach_completion(d);
  m.push(c, d);
  auto s = start(4, 4, spec::kDoorbellFromWriteIndex);
  const auto outer = m.attach_completion(s);
  m.submit(m.context(0), s);
  m.run();
  EXPECT_EQ(m.signal(inner), 0u);
  EXPECT_EQ(m.signal(outer), 0u);
  EXPECT_LT(m.trace.write_of(outer), m.trace.write_of(inner));
}

// D-093
TEST_F(ContextTest, StartWithoutADoorbellValueWaitsForTheDoorbell) {
  auto& c = m_.make_context(4);
  m_.push(c, nop());
  EXPECT_TRUE(m_.admin(start(4, 4)).done);
  m_.doorbell(4, 1);
  m_.run();
  EXPECT_EQ(m_.read_index(c), 1u);
}

// D-066: db_value replaces Write_Index for this start only. It does not limit later doorbells.
TEST_F(ContextTest, AfterAStartThatTakesWriteIndexDoorbellsAreNoticed) {
  auto& c = m_.make_context(4);
  m_.push(c, nop());
  EXPECT_TRUE(m_.admin(start(4, 4, spec::kDoorbellFromWriteIndex)).done);
  EXPECT_EQ(m_.read_index(c), 1u);
  m_.submit(c, nop());
  m_.run();
  EXPECT_EQ(m_.read_index(c), 2u);
}

// D-107 D-079 D-110
TEST_F(ContextTest, StructuresMayBeEditedWhileStopped) {
  auto& c = m_.start_context(4);
  m_.submit(c, nop());
  m_.run();
  m_.admin(stop(4, 4));
  m_.at<spec::cxt_sts>(c.sts).set(spec::cxt_sts::read_index, 10);
  m_.store64(c.write_index, 10);
  m_.submit(c, nop());
  m_.run();
  EXPECT_EQ(m_.read_index(c), 10u);
  EXPECT_FALSE(m_.admin(start(4, 4, spec::kDoorbellFromWriteIndex)).er);
  EXPECT_EQ(m_.read_index(c), 11u);
}

// D-079: every START reads the tables again, without an update operation.
TEST_F(ContextTest, StartReadsTheTablesAgain) {
  auto& c = m_.start_context(4);
  m_.submit(c, nop());
  m_.run();
  m_.admin(stop(4, 4));
  auto& again = m_.make_context(4, 8);
  EXPECT_FALSE(m_.admin(start(4, 4)).er);
  m_.submit(again, nop());
  m_.run();
  EXPECT_EQ(m_.read_index(again), 1u);
}

// D-079 D-063
TEST_F(ContextTest, Context0StopsItselfAfterItsCompletionAndIsJumpStartedAgain) {
  auto& c = m_.context(0);
  const auto outcome = m_.admin(stop(0, 0));
  EXPECT_TRUE(outcome.done);
  EXPECT_FALSE(outcome.er);
  EXPECT_EQ(m_.state(c), cxtv::CXTV_STOP_SW);
  auto& fresh = m_.make_context(0, 16, cxtv::CXTV_RUN);
  m_.submit(fresh, sync(spec::sync_filter::SYNC_FN));
  m_.run();
  EXPECT_EQ(m_.read_index(fresh), 1u);
}

// D-083: for example with the next operation.
TEST_F(ContextTest, AStopOfContext0ThatFailsOnAnotherContextDoesNotStopItLater) {
  m_.at<spec::cxt_ctl>(m_.make_context(4).ctl).set(spec::cxt_ctl::ds_ring_sz, 0);
  EXPECT_TRUE(m_.admin(stop(0, 4)).er);
  m_.set_state(m_.context(0), cxtv::CXTV_RUN);  // jump started (SDXI 4.3.4)
  EXPECT_TRUE(m_.admin(sync(spec::sync_filter::SYNC_FN)).done);
  EXPECT_EQ(m_.state(m_.context(0)), cxtv::CXTV_RUN);
}

}  // namespace
}  // namespace softhca::sdxi::test
