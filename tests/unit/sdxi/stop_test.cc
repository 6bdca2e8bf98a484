// SDXI 4.3.5, 6.6.4: stops of contexts, from every cause.
#include <gtest/gtest.h>

#include "sdxi/budget.h"
#include "sdxi/fault_rule.h"
#include "sdxi/faults.h"
#include "sdxi/machine.h"

namespace softhca::sdxi::test {
namespace {

using reg = spec::mmio_register;
using ent = spec::errlog_hd_ent;
using spec::cxtv;
using spec::fn_gsr;
using spec::fn_gsv;

class StopTest : public ::testing::Test {
 protected:
  StopTest() { m_.activate(); }
  Machine::Context& long_copy(Machine& m, ContextNumber number) {
    auto& c = m.start_context(number);
    size_ = 16u << 20;
    from_ = m.allocate(size_);
    to_ = m.allocate(size_);
    auto d = copy(from_, to_, size_);
    block_ = m.attach_completion(d);
    m.submit(c, d);
    m.step();
    EXPECT_EQ(m.signal(block_), 1u);
    return c;
  }
  std::uint64_t size_ = 0;
  Iova from_ = 0, to_ = 0, block_ = 0;
  FunctionGroup group_;
  Machine m_{group_};
};

// D-095 D-096 D-081
TEST_F(StopTest, StopCompletesBeforeALongCopyEnds) {
  auto& c = long_copy(m_, 4);
  auto d = stop(4, 4);
  const auto block = m_.attach_completion(d);
  m_.submit(m_.context(0), d);
  m_.step();
  EXPECT_EQ(m_.signal(block), 0u);
  EXPECT_EQ(m_.state(c), cxtv::CXTV_STOPG_SW);
  EXPECT_EQ(m_.signal(block_), 1u);
  m_.run();
  EXPECT_EQ(m_.state(c), cxtv::CXTV_STOP_SW);
  EXPECT_FALSE(m_.er(block_));
}

// D-097 D-099 D-102 D-081
TEST_F(StopTest, AHardStopAbortsTheOutstandingDescriptor) {
  auto& c = long_copy(m_, 4);
  EXPECT_TRUE(m_.admin(stop(4, 4, true)).done);
  EXPECT_EQ(m_.state(c), cxtv::CXTV_ERR_FN);
  EXPECT_TRUE(m_.er(block_));
  EXPECT_EQ(m_.signal(block_), 0u);
  EXPECT_EQ(m_.read_index(c), 1u);
  ASSERT_EQ(m_.records(), 1u);
  EXPECT_EQ(m_.record(0).get(ent::step), 7u);
  EXPECT_EQ(m_.record(0).get(ent::cxt_num), 4u);
}

// D-103: of several stops, the first makes the transition and decides the final state.
TEST_F(StopTest, StopsMergeIntoTheFirst) {
  FunctionGroup group;
  Machine m(group, {}, nullptr, Machine::Memory::kTraced);
  m.activate();
  auto& c = long_copy(m, 4);
  std::vector<cxtv> states;
  m.trace.on_write = [&](Iova at) {
    if (at == c.sts) states.push_back(m.state(c));
  };
  for (int i = 0; i < 3; ++i) m.submit(m.context(0), stop(4, 4));
  while (m.read_index(m.context(0)) < m.write_index(m.context(0))) m.step();
  ASSERT_EQ(m.state(c), cxtv::CXTV_STOPG_SW);
  ASSERT_EQ(m.signal(block_), 1u) << "the copy is outstanding";
  m.request(fn_gsr::GSRV_STOP_SF);
  m.run(100000);
  EXPECT_EQ(m.gsv(), fn_gsv::GSV_STOP);
  EXPECT_FALSE(m.er(block_));
  EXPECT_EQ(states, (std::vector{cxtv::CXTV_STOPG_SW, cxtv::CXTV_STOP_SW}));
}

// D-082 D-099: a hard stop strengthens a waiting soft stop; K5.
TEST_F(StopTest, AHardStopAbortsWhatASoftOneWaitsFor) {
  auto& c = long_copy(m_, 4);
  m_.submit(m_.context(0), stop(4, 4));
  m_.step();
  ASSERT_EQ(m_.state(c), cxtv::CXTV_STOPG_SW);
  m_.submit(m_.context(0), stop(4, 4, true));
  m_.step();
  EXPECT_EQ(m_.state(c), cxtv::CXTV_ERR_FN);
  EXPECT_TRUE(m_.er(block_));
  EXPECT_EQ(m_.records(), 1u);
  EXPECT_EQ(m_.state(m_.context(0)), cxtv::CXTV_RUN);
}

// D-082, 4.2.5: "once applied, the completion policy cannot be relaxed". The fault rule delays the
// stop, so that a soft stop can arrive meanwhile.
TEST_F(StopTest, AHardStopIsNotRelaxedByALaterSoftOne) {
  for (const bool by_function : {false, true}) {
    FunctionGroup group;
    Machine m(group);
    m.activate();
    auto& c = long_copy(m, 4);
    const auto rule = group.faults().add(*parse_fault("do=hang-stop"));
    m.submit(m.context(0), stop(4, 4, true));
    m.step();
    ASSERT_EQ(m.state(c), cxtv::CXTV_STOPG_SW);
    if (by_function) {
      m.request(fn_gsr::GSRV_STOP_SF);
    } else {
      m.submit(m.context(0), stop(4, 4));
    }
    m.step();
    EXPECT_EQ(m.signal(block_), 1u);
    EXPECT_TRUE(group.faults().remove(rule));
    m.run();
    EXPECT_EQ(m.state(c), cxtv::CXTV_ERR_FN) << "aborted";
    EXPECT_TRUE(m.er(block_));
  }
}

// D-098 D-100
TEST_F(StopTest, StopIsAcceptedInAnyStateAndIgnoresInvalidContexts) {
  const std::array states{cxtv::CXTV_STOP_SW, cxtv::CXTV_STOP_FN, cxtv::CXTV_ERR_FN,
                          cxtv::CXTV_RUN};
  for (ContextNumber i = 0; i < states.size(); ++i) m_.make_context(4 + i, 16, states[i]);
  for (int repeat = 0; repeat < 2; ++repeat) {
    const auto outcome = m_.admin(stop(1, 20));
    EXPECT_TRUE(outcome.done);
    EXPECT_FALSE(outcome.er);
    EXPECT_EQ(m_.state(m_.context(4)), cxtv::CXTV_STOP_SW);
    EXPECT_EQ(m_.state(m_.context(5)), cxtv::CXTV_STOP_FN);
    EXPECT_EQ(m_.state(m_.context(6)), cxtv::CXTV_ERR_FN);
    EXPECT_EQ(m_.state(m_.context(7)), cxtv::CXTV_STOP_SW);
  }
}

// D-101 D-119
TEST_F(StopTest, SyncStopWaitsForTheFinalState) {
  auto& c = long_copy(m_, 4);
  m_.submit(m_.context(0), stop(4, 4));
  auto d = sync(spec::sync_filter::SYNC_STOP, 4, 4);
  const auto block = m_.attach_completion(d);
  m_.submit(m_.context(0), d);
  m_.step();
  while (m_.signal(block) != 0) {
    EXPECT_EQ(m_.state(c), cxtv::CXTV_STOPG_SW);
    m_.step();
  }
  EXPECT_EQ(m_.state(c), cxtv::CXTV_STOP_SW);
  m_.admin(stop(4, 4, true));
  EXPECT_EQ(m_.state(c), cxtv::CXTV_STOP_SW);
}

TEST_F(StopTest, SyncStopOverContextsThatRunHasNothingToWaitFor) {
  m_.start_context(4);
  EXPECT_TRUE(m_.admin(sync(spec::sync_filter::SYNC_STOP, 0, 10)).done);
}

// Software decides how many contexts stop, and each end of a stop wakes the DSC_SYNC.
TEST_F(StopTest, ASyncPaysForEachStopThatItChecks) {
  constexpr ContextNumber kStops = 8;
  const auto cost = [this] {
    const auto before = m_.device->contexts().statistics().bytes;
    EXPECT_TRUE(m_.admin(sync(spec::sync_filter::SYNC_STOP, kStops + 1, kStops + 1)).done);
    return m_.device->contexts().statistics().bytes - before;
  };
  const auto idle = cost();
  EXPECT_NE(group_.faults().add(*parse_fault("do=hang-stop")), 0u);
  for (ContextNumber i = 1; i <= kStops; ++i) m_.start_context(i);
  EXPECT_TRUE(m_.admin(stop(1, kStops)).done);
  EXPECT_EQ(cost() - idle, static_cast<std::uint64_t>(kStops * kStopCheckCost));
}

// D-104: K6 to K13 of a stop that aborts, in bus order.
TEST_F(StopTest, TheStepsOfAnAbortingStopComeInOrder) {
  FunctionGroup group;
  Machine m(group, {}, nullptr, Machine::Memory::kTraced);
  m.activate();
  auto& c = long_copy(m, 4);
  std::vector<std::string> order;
  m.trace.on_write = [&](Iova at) {
    if (at == c.sts) order.push_back("state " + std::to_string(static_cast<int>(m.state(c))));
    if (at == c.sts + 8) order.push_back("read_index");
    if (at == block_ + 8) order.push_back("er");
    if (at == block_) order.push_back("signal");
    if (at == m.record_at(0)) order.push_back("record");
  };
  m.submit(m.context(0), stop(4, 4, true));
  m.run(100000);
  EXPECT_EQ(order, (std::vector<std::string>{"state 2", "er", "signal", "read_index", "record",
                                             "state 15"}));
  EXPECT_EQ(m.read_index(c), 1u) << "a descriptor boundary";
}

// D-104: the same for a stop with nothing to abort. K12 b.
TEST_F(StopTest, TheStepsOfAFunctionStopComeInOrder) {
  FunctionGroup group;
  Machine m(group, {}, nullptr, Machine::Memory::kTraced);
  m.activate();
  auto& c = long_copy(m, 4);
  std::vector<std::string> order;
  m.trace.on_write = [&](Iova at) {
    if (at == c.sts) order.push_back("state " + std::to_string(static_cast<int>(m.state(c))));
    if (at == block_) order.push_back("signal");
  };
  m.request(fn_gsr::GSRV_STOP_SF);
  m.run(100000);
  EXPECT_EQ(order, (std::vector<std::string>{"state 6", "signal", "state 4"}));
  EXPECT_EQ(m.records(), 0u);
}

// D-105: K2c.
TEST_F(StopTest, StopOfAnUnreadableContextIsLogged) {
  auto& c = m_.make_context(4, 16, cxtv::CXTV_RUN);
  spec::set_address(m_.at<spec::cxt_ctl>(c.ctl), spec::cxt_ctl::cxt_sts_ptr, 0x1000);
  EXPECT_TRUE(m_.admin(stop(4, 4)).er);
  EXPECT_EQ(m_.record(0).get(ent::target_step), 5u);
}

// D-105: K2d.
TEST_F(StopTest, StopOfAnInvalidContextDoesNothing) {
  auto& c = m_.make_context(4, 16, cxtv::CXTV_RUN);
  m_.at<spec::cxt_ctl>(c.ctl).set(spec::cxt_ctl::vl, 0);
  EXPECT_FALSE(m_.admin(stop(4, 4)).er);
  EXPECT_EQ(m_.records(), 0u);
  EXPECT_EQ(m_.state(c), cxtv::CXTV_RUN);
}

// D-105: K2a, when ChkValid:Cxt fails with LogErr:Cxt.
TEST_F(StopTest, AFunctionStopPassesOverAContextWithUnreadableStructures) {
  auto& c = m_.start_context(4);
  m_.submit(c, nop());
  m_.run();
  m_.at<spec::cxt_ctl>(c.ctl).set(spec::cxt_ctl::ds_ring_sz, 0);
  m_.request(fn_gsr::GSRV_STOP_SF);
  m_.run();
  EXPECT_EQ(m_.gsv(), fn_gsv::GSV_STOP);
  EXPECT_EQ(m_.records(), 0u);
  EXPECT_EQ(m_.state(c), cxtv::CXTV_RUN);
}

// D-105 D-106: K1 and K2b. CXT_STS is at an unmapped address, so the context cannot be stopped.
TEST_F(StopTest, AnErrorOfAContextThatFailsItsCheckHaltsTheFunction) {
  auto& c = m_.start_context(4);
  m_.submit(c, nop());
  m_.run();
  spec::set_address(m_.at<spec::cxt_ctl>(c.ctl), spec::cxt_ctl::cxt_sts_ptr, 0x1000);
  EXPECT_FALSE(m_.admin(update_contexts(4, 4)).er);
  m_.submit(c, nop());
  m_.run();
  EXPECT_EQ(m_.gsv(), fn_gsv::GSV_ERROR);
  ASSERT_EQ(m_.records(), 1u) << "no record says that the context has stopped";
  EXPECT_EQ(m_.record(0).get(ent::step), 1u);
  EXPECT_EQ(m_.record(0).get(ent::re), 2u);
  EXPECT_EQ(m_.record(0).get(ent::cxt_num), 4u);
}

// D-053: K9b. CXT_STS can be read but not written.
TEST_F(StopTest, AnErrorOfAContextWhoseStatusCannotBeWrittenHaltsTheFunction) {
  FunctionGroup group;
  Machine m(group, {}, nullptr, Machine::Memory::kTraced);
  m.activate();
  auto& c = m.start_context(4);
  m.trace.refuse_writes_at = c.sts;
  m.submit(c, make(spec::dsc_type::VENDOR_GRP_0, 0));
  m.run();
  EXPECT_EQ(m.gsv(), fn_gsv::GSV_ERROR);
}

// K9b: the same fault has the same outcome, whether or not the context was signaled.
TEST_F(StopTest, AStopOfAContextWhoseStatusCannotBeWrittenHaltsTheFunction) {
  for (const bool signaled : {false, true}) {
    FunctionGroup group;
    Machine m(group, {}, nullptr, Machine::Memory::kTraced);
    m.activate();
    auto& c = m.start_context(4);
    if (signaled) {
      EXPECT_TRUE(m.execute(c, nop()).done);
    }
    m.trace.refuse_writes_at = c.sts;
    m.submit(m.context(0), stop(4, 4));
    m.run();
    EXPECT_EQ(m.gsv(), fn_gsv::GSV_ERROR) << signaled;
  }
}

// K2a. Software must not do this; if it does, the stop ignores the context.
TEST_F(StopTest, AFunctionStopLeavesAContextWithoutValidStructuresAlone) {
  auto& c = m_.start_context(4);
  m_.submit(c, nop());
  m_.run();
  m_.at<spec::cxt_l1_ent>(c.l1).set(spec::cxt_l1_ent::vl, 0);
  m_.request(fn_gsr::GSRV_STOP_SF);
  m_.run();
  EXPECT_EQ(m_.gsv(), fn_gsv::GSV_STOP);
  EXPECT_EQ(m_.state(c), cxtv::CXTV_RUN);
  EXPECT_EQ(m_.records(), 0u);
}

// K3: "already at CXTV_STOP_[SW, FN] or CXTV_ERR_FN": the stop action ends, and the error is
// logged.
TEST_F(StopTest, AStopForAnErrorLeavesAFinalStateThatIsThereAlready) {
  auto& c = long_copy(m_, 4);
  m_.set_state(c, cxtv::CXTV_STOP_FN);
  m_.akey(c, 0).set(spec::akey_ent::vl, 0);
  m_.run();
  EXPECT_EQ(m_.state(c), cxtv::CXTV_STOP_FN);
  EXPECT_TRUE(m_.er(block_));
  EXPECT_EQ(m_.records(), 1u);
  EXPECT_EQ(m_.gsv(), fn_gsv::GSV_ACTIVE);
}

// D-083: software makes a running context invalid, or writes its state. The outstanding descriptor
// completes with an error when an operation finds that. CXT_STS stays as it is (6.6.3 step 1).
TEST_F(StopTest, AContextThatSoftwareChangedFailsItsOutstandingDescriptor) {
  enum class Change { kInvalid, kNoRing, kState };
  struct Case {
    const char* name;
    Change change;
    Descriptor operation;
    cxtv state;  ///< afterwards
  };
  using enum cxtv;
  const auto restore = spec::admin_subtype::DSC_CXT_START_RS;
  const std::array cases{
      Case{"stop of an invalid context", Change::kInvalid, stop(4, 4), CXTV_RUN},
      Case{"hard stop of an invalid context", Change::kInvalid, stop(4, 4, true), CXTV_RUN},
      Case{"stop of a context without a ring", Change::kNoRing, stop(4, 4), CXTV_RUN},
      Case{"stop of a context that is stopped", Change::kState, stop(4, 4), CXTV_STOP_FN},
      Case{"start of an invalid context", Change::kInvalid, start(4, 4), CXTV_RUN},
      Case{"restore of an invalid context", Change::kInvalid, start(4, 4, std::nullopt, restore),
           CXTV_RUN},
      Case{"start of a context that is stopped", Change::kState, start(4, 4), CXTV_RUN},
      Case{"update of an invalid context", Change::kInvalid, update_contexts(4, 4), CXTV_RUN},
  };
  for (const auto& [name, change, operation, state] : cases) {
    SCOPED_TRACE(name);
    FunctionGroup group;
    Machine m(group);
    m.activate();
    auto& c = long_copy(m, 4);
    if (change == Change::kInvalid) m.at<spec::cxt_l1_ent>(c.l1).set(spec::cxt_l1_ent::vl, 0);
    if (change == Change::kNoRing) {
      spec::set_address(m.at<spec::cxt_ctl>(c.ctl), spec::cxt_ctl::ds_ring_ptr, 0x1000);
    }
    if (change == Change::kState) m.set_state(c, cxtv::CXTV_STOP_FN);
    EXPECT_TRUE(m.admin(operation).done);
    EXPECT_EQ(m.signal(block_), 0u);
    EXPECT_TRUE(m.er(block_));
    ASSERT_GE(m.records(), 1u);
    EXPECT_EQ(m.record(0).get(ent::step), 7u);
    EXPECT_EQ(m.record(0).get(ent::re), 0u);
    EXPECT_EQ(m.record(0).get(ent::cxt_num), 4u);
    EXPECT_EQ(m.record(0).get(ent::div), 1u);
    EXPECT_EQ(m.state(c), state);
    EXPECT_EQ(m.gsv(), fn_gsv::GSV_ACTIVE);
  }
}

// D-083: K4 and K5 are for stops of the function. A stopping state that software wrote waits for
// nothing, so no later step would complete the outstanding descriptor.
TEST_F(StopTest, AStoppingStateOfSoftwareFailsTheOutstandingDescriptor) {
  for (const auto state : {cxtv::CXTV_STOPG_SW, cxtv::CXTV_STOPG_FN}) {
    for (const bool by_function : {false, true}) {
      SCOPED_TRACE(testing::Message() << to_string(state) << " " << by_function);
      FunctionGroup group;
      Machine m(group);
      m.activate();
      auto& c = long_copy(m, 4);
      m.set_state(c, state);
      if (by_function) {
        m.request(fn_gsr::GSRV_STOP_SF);
        m.run();
        EXPECT_EQ(m.gsv(), fn_gsv::GSV_STOP);
      } else {
        EXPECT_FALSE(m.admin(stop(4, 4)).er);
        EXPECT_EQ(m.gsv(), fn_gsv::GSV_ACTIVE);
      }
      EXPECT_EQ(m.signal(block_), 0u);
      EXPECT_TRUE(m.er(block_));
      ASSERT_EQ(m.records(), 1u);
      EXPECT_EQ(m.record(0).get(ent::re), 0u);
      EXPECT_EQ(m.record(0).get(ent::cxt_num), 4u);
      EXPECT_EQ(m.state(c), state);
    }
  }
}

// D-083 D-105: K2a does nothing to the context, but no descriptor remains without a completion.
TEST_F(StopTest, AFunctionStopFailsTheOutstandingDescriptorOfAnInvalidContext) {
  auto& c = long_copy(m_, 4);
  m_.at<spec::cxt_l1_ent>(c.l1).set(spec::cxt_l1_ent::vl, 0);
  m_.request(fn_gsr::GSRV_STOP_SF);
  m_.run();
  EXPECT_EQ(m_.gsv(), fn_gsv::GSV_STOP);
  EXPECT_EQ(m_.signal(block_), 0u);
  EXPECT_TRUE(m_.er(block_));
  EXPECT_EQ(m_.records(), 1u);
  EXPECT_EQ(m_.state(c), cxtv::CXTV_RUN);
}

// D-083 D-102: the same with a reserved state, which stops the context.
TEST_F(StopTest, AReservedStateFailsTheOutstandingDescriptor) {
  auto& c = long_copy(m_, 4);
  m_.set_state(c, static_cast<cxtv>(9));
  m_.run();
  EXPECT_EQ(m_.signal(block_), 0u);
  EXPECT_TRUE(m_.er(block_));
  EXPECT_EQ(m_.records(), 1u);
  EXPECT_EQ(m_.state(c), cxtv::CXTV_ERR_FN);
}

// The device cannot access memory behind a peer during a register access.
TEST_F(StopTest, AFunctionStopTouchesMemoryInARunOnly) {
  FunctionGroup group;
  Machine m(group, {}, nullptr, Machine::Memory::kTraced);
  m.activate();
  auto& c = m.start_context(4);
  m.submit(c, nop());
  m.run();
  m.trace.silent = true;
  m.request(fn_gsr::GSRV_STOP_SF);
  m.trace.silent = false;
  EXPECT_EQ(m.gsv(), fn_gsv::GSV_STOPG_SF);
  m.run();
  EXPECT_EQ(m.gsv(), fn_gsv::GSV_STOP);
  EXPECT_EQ(m.state(m.context(0)), cxtv::CXTV_STOP_FN) << "the first that is visited";
  EXPECT_EQ(m.state(c), cxtv::CXTV_STOP_FN);
}

TEST_F(StopTest, AWaitingSyncKeepsNoWorkerBusy) {
  auto& c = m_.start_context(4);
  const auto rule = group_.faults().add(*parse_fault("context=4,do=stall"));
  m_.submit(c, nop());
  m_.run();
  m_.submit(m_.context(0), stop(4, 4));
  auto d = sync(spec::sync_filter::SYNC_STOP, 4, 4);
  const auto block = m_.attach_completion(d);
  m_.submit(m_.context(0), d);
  for (int i = 0; i < 5; ++i) m_.step();
  EXPECT_EQ(m_.state(c), cxtv::CXTV_STOPG_SW);
  EXPECT_FALSE(m_.step_further());
  EXPECT_EQ(m_.signal(block), 1u);
  EXPECT_TRUE(group_.faults().remove(rule));
  m_.run();
  EXPECT_EQ(m_.state(c), cxtv::CXTV_STOP_SW);
  EXPECT_EQ(m_.signal(block), 0u);
}

}  // namespace
}  // namespace softhca::sdxi::test
