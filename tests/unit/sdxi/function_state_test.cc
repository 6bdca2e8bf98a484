// SDXI 4.1: the state machine of the function.
#include <gtest/gtest.h>

#include "sdxi/faults.h"
#include "sdxi/machine.h"

namespace softhca::sdxi::test {
namespace {

using reg = spec::mmio_register;
using spec::cxtv;
using spec::fn_gsr;
using spec::fn_gsv;

class FunctionStateTest : public ::testing::Test {
 protected:
  /// Starts a copy of several turns, and leaves the function in the middle of it.
  Machine::Context& begin_long_copy(Machine& m) {
    auto& c = m.start_context(1);
    const auto size = 16u << 20;
    from_ = m.allocate(size);
    to_ = m.allocate(size);
    m.fill(from_, size, 3);
    auto d = copy(from_, to_, size);
    block_ = m.attach_completion(d);
    m.submit(c, d);
    m.step();
    EXPECT_EQ(m.signal(block_), 1u);
    return c;
  }
  void write_all_but(fn_gsr except, fn_gsv state) {
    for (auto value :
         {fn_gsr::GSRV_RESET, fn_gsr::GSRV_STOP_SF, fn_gsr::GSRV_STOP_HD, fn_gsr::GSRV_ACTIVE}) {
      if (value != except) m_.request(value);
      EXPECT_EQ(m_.gsv(), state);
    }
  }
  Iova from_ = 0, to_ = 0, block_ = 0;
  FunctionGroup group_;
  Machine m_{group_};
};

// D-028 D-042 D-043
TEST_F(FunctionStateTest, StopLeavesOnlyForGsrvActiveByWayOfInit) {
  write_all_but(fn_gsr::GSRV_ACTIVE, fn_gsv::GSV_STOP);
  m_.make_tables();
  m_.request(fn_gsr::GSRV_ACTIVE);
  EXPECT_EQ(m_.gsv(), fn_gsv::GSV_INIT);
  m_.request(fn_gsr::GSRV_ACTIVE);
  m_.run();
  EXPECT_EQ(m_.gsv(), fn_gsv::GSV_ACTIVE);
  m_.request(fn_gsr::GSRV_ACTIVE);
  EXPECT_EQ(m_.gsv(), fn_gsv::GSV_ACTIVE);
}

// D-041
TEST_F(FunctionStateTest, InStopNoMemoryIsAccessed) {
  FunctionGroup group;
  Machine m(group, {}, nullptr, Machine::Memory::kTraced);
  m.make_tables();
  auto& c = m.make_context(1, 16, cxtv::CXTV_RUN);
  m.submit(c, nop());
  m.run();
  EXPECT_TRUE(m.trace.accesses.empty());
}

// D-044
TEST_F(FunctionStateTest, InitRefusesALimitAboveTheCapability) {
  m_.make_error_log();
  m_.set_field<spec::mmio_ctl2>(reg::MMIO_CTL2, spec::mmio_ctl2::max_cxt, 5000);
  m_.request(fn_gsr::GSRV_ACTIVE);
  m_.run();
  EXPECT_EQ(m_.gsv(), fn_gsv::GSV_ERROR);
  EXPECT_EQ(m_.record(0).get(spec::errlog_hd_ent::err_class), 0x2300u);
}

// D-045
TEST_F(FunctionStateTest, Sts0HoldsNothingButTheState) {
  m_.activate();
  EXPECT_EQ(m_.read(reg::MMIO_STS0), 2u);
}

// D-046 D-024 D-057
TEST_F(FunctionStateTest, AnotherRequestInInitIsAFunctionError) {
  for (const bool enabled : {true, false}) {
    for (auto value : {fn_gsr::GSRV_RESET, fn_gsr::GSRV_STOP_SF, fn_gsr::GSRV_STOP_HD}) {
      m_.set_field<spec::mmio_ctl0>(reg::MMIO_CTL0, spec::mmio_ctl0::fn_err_intr_en, enabled);
      m_.request(fn_gsr::GSRV_ACTIVE);
      ASSERT_EQ(m_.gsv(), fn_gsv::GSV_INIT);
      const auto before = m_.interrupts(0);
      m_.request(value);
      EXPECT_EQ(m_.gsv(), fn_gsv::GSV_ERROR);
      EXPECT_EQ(m_.interrupts(0), before + (enabled ? 1 : 0));
      m_.request(fn_gsr::GSRV_RESET);
      EXPECT_EQ(m_.gsv(), fn_gsv::GSV_STOP);
    }
  }
}

// D-024
TEST_F(FunctionStateTest, WithoutFnErrIntrEnNoInterruptComesOnError) {
  m_.activate();
  m_.write(reg::MMIO_ERR_CTL, 0);
  m_.request(fn_gsr::GSRV_RESET);
  EXPECT_EQ(m_.gsv(), fn_gsv::GSV_ERROR);
  EXPECT_EQ(m_.interrupts(0), 0u);
}

// D-047
TEST_F(FunctionStateTest, ActiveStopsSoftOrHard) {
  for (auto value : {fn_gsr::GSRV_STOP_SF, fn_gsr::GSRV_STOP_HD}) {
    m_.activate();
    m_.request(value);
    EXPECT_EQ(m_.gsv(),
              value == fn_gsr::GSRV_STOP_SF ? fn_gsv::GSV_STOPG_SF : fn_gsv::GSV_STOPG_HD);
    m_.run();
    EXPECT_EQ(m_.gsv(), fn_gsv::GSV_STOP);
    EXPECT_EQ(m_.state(m_.context(0)), cxtv::CXTV_STOP_FN);
  }
}

// D-048 D-058
TEST_F(FunctionStateTest, ResetInActiveIsAFunctionErrorWithARecord) {
  m_.activate();
  m_.request(fn_gsr::GSRV_RESET);
  EXPECT_EQ(m_.gsv(), fn_gsv::GSV_ERROR);
  ASSERT_EQ(m_.records(), 1u);
  EXPECT_EQ(m_.record(0).get(spec::errlog_hd_ent::step), 1u);
  EXPECT_EQ(m_.record(0).get(spec::errlog_hd_ent::re), 2u);
  EXPECT_EQ(m_.record(0).get(spec::errlog_hd_ent::cv), 0u);
}

// D-058: when the record is written, the state is not yet GSV_ERROR.
TEST_F(FunctionStateTest, TheRecordIsWrittenBeforeTheStateIsError) {
  FunctionGroup group;
  Machine m(group, {}, nullptr, Machine::Memory::kTraced);
  m.activate();
  std::vector<fn_gsv> seen;
  m.trace.on_write = [&](Iova) { seen.push_back(m.gsv()); };
  m.request(fn_gsr::GSRV_RESET);
  ASSERT_FALSE(seen.empty());
  for (const auto state : seen) EXPECT_EQ(state, fn_gsv::GSV_ACTIVE);
}

// D-049 D-051
TEST_F(FunctionStateTest, SoftStopLetsTheOutstandingDescriptorFinishAndTakesNoNewOne) {
  m_.activate();
  auto& c = begin_long_copy(m_);
  m_.submit(c, nop());
  m_.request(fn_gsr::GSRV_STOP_SF);
  m_.step();
  EXPECT_EQ(m_.state(c), cxtv::CXTV_STOPG_FN);
  EXPECT_EQ(m_.gsv(), fn_gsv::GSV_STOPG_SF);
  m_.run();
  EXPECT_EQ(m_.gsv(), fn_gsv::GSV_STOP);
  EXPECT_EQ(m_.state(c), cxtv::CXTV_STOP_FN);
  EXPECT_EQ(m_.read_index(c), 1u);
  EXPECT_EQ(m_.signal(block_), 0u);
  EXPECT_FALSE(m_.er(block_));
  EXPECT_TRUE(m_.equal(from_, to_, 16u << 20));
  EXPECT_TRUE(m_.valid(c, 1));
}

// D-049: descriptors so short that the run would have time for many, and contexts that the stop
// reaches late.
TEST_F(FunctionStateTest, AfterAStopRequestNoDescriptorIsStarted) {
  for (const auto request : {fn_gsr::GSRV_STOP_SF, fn_gsr::GSRV_STOP_HD}) {
    for (const unsigned workers : {0u, 2u}) {
      FunctionGroup group;
      Machine m(group, {.workers = workers});
      m.activate();
      const auto from = m.allocate(4096), to = m.allocate(4096);
      std::array contexts{&m.start_context(1, 1024), &m.start_context(200, 1024)};
      for (auto* c : contexts) {
        for (int i = 0; i < 1000; ++i) m.push(*c, copy(from, to, 4096));
      }
      for (auto* c : contexts) m.doorbell(c->number, 1000);
      m.step();
      m.request(request);
      std::array<std::uint64_t, 2> before{};
      for (std::size_t i = 0; i < 2; ++i) before[i] = m.read_index(*contexts[i]);
      m.run();
      EXPECT_EQ(m.gsv(), fn_gsv::GSV_STOP);
      for (std::size_t i = 0; i < 2; ++i) {
        // A descriptor in execution completes, and its Read_Index may not have been written yet.
        EXPECT_LE(m.read_index(*contexts[i]), before[i] + 1) << i << ' ' << workers;
        EXPECT_LT(m.read_index(*contexts[i]), 1000u);
      }
    }
  }
}

// SDXI 4.1.4: a context not started is no error: it can be started again.
TEST_F(FunctionStateTest, AStartThatWaitsBehindAStopRequestIsNotBegun) {
  m_.activate();
  m_.make_context(4);
  auto& admin = m_.context(0);
  for (int i = 0; i < 10; ++i) m_.push(admin, nop());
  m_.push(admin, start(4, 4));
  m_.doorbell(0, m_.load64(admin.write_index));
  m_.request(fn_gsr::GSRV_STOP_SF);
  m_.run();
  EXPECT_EQ(m_.gsv(), fn_gsv::GSV_STOP);
  EXPECT_EQ(m_.records(), 0u);
  EXPECT_EQ(m_.state(admin), cxtv::CXTV_STOP_FN);
}

// A run() takes turns before it reaches the contexts to stop. Each start that is begun in such a
// turn would be refused, since the function is no longer active.
TEST_F(FunctionStateTest, AStartWhoseTurnComesAfterAStopRequestIsNotBegun) {
  FunctionGroup group;
  Machine m(group, {.run_bytes = 4096});
  m.activate();
  m.make_context(4);
  auto& admin = m.context(0);
  for (int i = 0; i < 20; ++i) m.push(admin, start(4, 4));
  m.doorbell(0, m.write_index(admin));
  m.step();
  const auto begun = m.read_index(admin);
  ASSERT_GT(begun, 0u);
  ASSERT_LT(begun, m.write_index(admin)) << "the run has no time for all";
  m.request(fn_gsr::GSRV_STOP_SF);
  m.run();
  EXPECT_EQ(m.gsv(), fn_gsv::GSV_STOP);
  EXPECT_EQ(m.read_index(admin), begun);
  EXPECT_EQ(m.records(), 0u);
  EXPECT_EQ(m.state(admin), cxtv::CXTV_STOP_FN);
}

// D-051: unevaluated doorbells that were rung just before the request.
TEST_F(FunctionStateTest, StopIsReportedAfterTheLastAccessToMemory) {
  for (const auto request : {fn_gsr::GSRV_STOP_SF, fn_gsr::GSRV_STOP_HD}) {
    FunctionGroup group;
    Machine m(group, {}, nullptr, Machine::Memory::kTraced);
    m.activate();
    for (ContextNumber i = 1; i <= 100; ++i) {
      m.push(m.make_context(i, 16, cxtv::CXTV_RUN), nop());
    }
    for (ContextNumber i = 1; i <= 100; ++i) m.doorbell(i, 1);
    m.request(request);
    while (m.gsv() != fn_gsv::GSV_STOP) m.step();
    for (ContextNumber i = 0; i <= 100; ++i) {
      ASSERT_EQ(m.state(m.context(i)), cxtv::CXTV_STOP_FN) << i;
    }
    m.trace.accesses.clear();
    m.run();
    EXPECT_TRUE(m.trace.accesses.empty());
  }
}

// The Linux driver waits one second for its function. The limit is shorter, so that the driver sees
// the abort instead of its own timeout.
TEST_F(FunctionStateTest, ASoftStopAbortsBeforeTheLinuxDriverGivesUp) {
  m_.activate();
  auto& c = m_.start_context(1);
  group_.faults().add(*parse_fault("context=1,do=stall"));
  auto d = nop();
  const auto block = m_.attach_completion(d);
  m_.submit(c, d);
  m_.run();
  m_.request(fn_gsr::GSRV_STOP_SF);
  const auto deadline = m_.now() + std::chrono::seconds(1);
  while (m_.gsv() != fn_gsv::GSV_STOP && m_.now() < deadline) {
    m_.advance(std::chrono::milliseconds(1));
    m_.step();
  }
  EXPECT_EQ(m_.gsv(), fn_gsv::GSV_STOP);
  EXPECT_TRUE(m_.er(block));
  EXPECT_EQ(m_.state(c), cxtv::CXTV_ERR_FN);
  EXPECT_EQ(m_.records(), 1u);
  group_.faults().clear();
}

// SDXI 6.6.3: a DSC_CXT_START_NM that has not started all of its contexts fails with a record.
TEST_F(FunctionStateTest, AStartThatAStopRequestInterruptsFailsAndCanBeRepeated) {
  FunctionGroup group;
  Machine m(group, {.capabilities = {.max_cxt = 4000}});
  m.activate();
  std::vector<Machine::Context*> contexts;
  for (ContextNumber number = 1; number <= 4000; ++number) {
    contexts.push_back(&m.make_context(number, 1));
  }
  auto d = start(1, 4000);
  const auto block = m.attach_completion(d);
  const auto index = m.submit(m.context(0), d);
  m.step();
  ASSERT_EQ(m.state(*contexts.front()), cxtv::CXTV_RUN);
  ASSERT_EQ(m.state(*contexts.back()), cxtv::CXTV_STOP_SW) << "it is under way";
  m.request(fn_gsr::GSRV_STOP_SF);
  m.run();
  EXPECT_EQ(m.gsv(), fn_gsv::GSV_STOP);
  EXPECT_TRUE(m.er(block));
  EXPECT_EQ(m.state(m.context(0)), cxtv::CXTV_ERR_FN);
  ASSERT_EQ(m.records(), 1u);
  EXPECT_EQ(m.record(0).get(spec::errlog_hd_ent::dsc_index), index);
  EXPECT_EQ(m.state(*contexts.front()), cxtv::CXTV_STOP_FN) << "a final state for each";
  EXPECT_EQ(m.state(*contexts.back()), cxtv::CXTV_STOP_SW);
  m.set_state(m.context(0), cxtv::CXTV_RUN);
  m.store64(m.context(0).write_index, m.read_index(m.context(0)));
  m.request(fn_gsr::GSRV_ACTIVE);
  m.run();
  EXPECT_FALSE(m.admin(start(1, 4000)).er);
  EXPECT_EQ(m.state(*contexts.front()), cxtv::CXTV_RUN);
  EXPECT_EQ(m.state(*contexts.back()), cxtv::CXTV_RUN);
}

// D-049 D-050 D-102
TEST_F(FunctionStateTest, ASoftStopThatTakesTooLongAbortsWithARecord) {
  FunctionGroup group;
  Machine m(group, {.soft_stop_timeout = std::chrono::nanoseconds(150)});
  m.activate();
  auto& c = begin_long_copy(m);
  m.request(fn_gsr::GSRV_STOP_SF);
  m.run();
  EXPECT_EQ(m.gsv(), fn_gsv::GSV_STOP);
  EXPECT_EQ(m.state(c), cxtv::CXTV_ERR_FN);
  EXPECT_TRUE(m.er(block_));
  EXPECT_EQ(m.signal(block_), 0u);
  EXPECT_EQ(m.records(), 1u);
}

// D-052
TEST_F(FunctionStateTest, AFailingDescriptorDoesNotKeepTheFunctionFromStopping) {
  m_.activate();
  auto& c = begin_long_copy(m_);
  m_.akey(c, 0).set(spec::akey_ent::vl, 0);
  m_.request(fn_gsr::GSRV_STOP_SF);
  m_.run();
  EXPECT_EQ(m_.gsv(), fn_gsv::GSV_STOP);
  EXPECT_EQ(m_.state(c), cxtv::CXTV_ERR_FN);
}

// D-053
TEST_F(FunctionStateTest, AContextThatCannotBeStoppedHaltsTheFunction) {
  FunctionGroup group;
  Machine m(group, {}, nullptr, Machine::Memory::kTraced);
  m.activate();
  auto& c = m.start_context(1);
  m.trace.refuse_writes_at = c.sts;
  m.request(fn_gsr::GSRV_STOP_SF);
  m.run();
  EXPECT_EQ(m.gsv(), fn_gsv::GSV_ERROR);
}

// D-054 D-055 D-056
TEST_F(FunctionStateTest, SoftStopEscalatesToHardWhichAborts) {
  m_.activate();
  auto& c = begin_long_copy(m_);
  m_.request(fn_gsr::GSRV_STOP_SF);
  for (auto value : {fn_gsr::GSRV_RESET, fn_gsr::GSRV_ACTIVE, fn_gsr::GSRV_STOP_SF}) {
    m_.request(value);
    EXPECT_EQ(m_.gsv(), fn_gsv::GSV_STOPG_SF);
  }
  m_.request(fn_gsr::GSRV_STOP_HD);
  write_all_but(fn_gsr::GSRV_STOP_HD, fn_gsv::GSV_STOPG_HD);
  m_.run();
  EXPECT_EQ(m_.gsv(), fn_gsv::GSV_STOP);
  EXPECT_EQ(m_.state(c), cxtv::CXTV_ERR_FN);
  EXPECT_FALSE(m_.equal(from_, to_, 16u << 20));
  ASSERT_EQ(m_.records(), 1u);
  EXPECT_EQ(m_.record(0).get(spec::errlog_hd_ent::step), 7u);
}

// D-060 D-061
TEST_F(FunctionStateTest, ErrorLeavesOnlyForReset) {
  m_.activate();
  m_.request(fn_gsr::GSRV_RESET);
  for (auto value : {fn_gsr::GSRV_ACTIVE, fn_gsr::GSRV_STOP_SF, fn_gsr::GSRV_STOP_HD}) {
    m_.request(value);
    EXPECT_EQ(m_.gsv(), fn_gsv::GSV_ERROR);
  }
  m_.request(fn_gsr::GSRV_RESET);
  EXPECT_EQ(m_.gsv(), fn_gsv::GSV_STOP);
  m_.make_context(0, 16, cxtv::CXTV_RUN);
  m_.request(fn_gsr::GSRV_ACTIVE);
  m_.run();
  EXPECT_EQ(m_.gsv(), fn_gsv::GSV_ACTIVE);
}

// D-063 D-064
TEST_F(FunctionStateTest, ChangedStructuresTakeEffectAfterAStop) {
  m_.activate();
  EXPECT_TRUE(m_.admin(sync(spec::sync_filter::SYNC_FN)).done);
  m_.request(fn_gsr::GSRV_STOP_SF);
  m_.run();
  m_.make_context(0, 8, cxtv::CXTV_RUN);  // another ring, another CXT_CTL
  m_.request(fn_gsr::GSRV_ACTIVE);
  m_.run();
  EXPECT_TRUE(m_.admin(sync(spec::sync_filter::SYNC_FN)).done);
  EXPECT_EQ(m_.read_index(m_.context(0)), 1u);
}

// D-064: the function drops everything cached of a context that ran. Software changes the
// structures in place while the function is stopped, without an update operation.
TEST_F(FunctionStateTest, NothingOfAContextIsKnownAfterAStop) {
  Machine peer(group_);
  m_.activate(), peer.activate();
  m_.make_rkeys();
  m_.rkey(0).set(spec::rkey_ent::vl, 1);
  m_.rkey(0).set(spec::rkey_ent::req_sfunc, peer.device->sfunc());
  auto& other = peer.start_context(1);
  peer.akey(other, 2).set(spec::akey_ent::vl, 1);
  peer.akey(other, 2).set(spec::akey_ent::tgt_sfunc, m_.device->sfunc());
  auto& c = m_.start_context(4);
  const auto from = m_.allocate(64), to = m_.allocate(64), theirs = peer.allocate(64);
  ASSERT_FALSE(m_.execute(c, copy(from, to, 64)).er);
  ASSERT_FALSE(peer.execute(other, copy(theirs, to, 64, 0, 2)).er);

  m_.request(fn_gsr::GSRV_STOP_SF);
  m_.run();
  ASSERT_EQ(m_.gsv(), fn_gsv::GSV_STOP);
  const auto ring = m_.allocate(8 * 64), akeys = m_.allocate(4096, 4096);
  std::memset(m_.host(ring), 0, 8 * 64);
  std::memset(m_.host(akeys), 0, 4096);
  spec::set_address(m_.at<spec::cxt_ctl>(c.ctl), spec::cxt_ctl::ds_ring_ptr, ring);
  m_.at<spec::cxt_ctl>(c.ctl).set(spec::cxt_ctl::ds_ring_sz, 8);
  spec::set_address(m_.at<spec::cxt_l1_ent>(c.l1), spec::cxt_l1_ent::akey_ptr, akeys);
  c.ring = ring, c.ring_sz = 8, c.akeys = akeys;
  m_.akey(c, 1).set(spec::akey_ent::vl, 1);  // entry 0 is no longer valid
  m_.at<spec::cxt_sts>(c.sts).set(spec::cxt_sts::read_index, 100);
  m_.store64(c.write_index, 100);
  m_.set_state(c, cxtv::CXTV_RUN);
  m_.rkey(0).set(spec::rkey_ent::vl, 0);
  m_.set_state(m_.context(0), cxtv::CXTV_RUN);
  m_.request(fn_gsr::GSRV_ACTIVE);
  m_.run();

  m_.fill(from, 64, 9);
  EXPECT_TRUE(m_.execute(c, copy(from, to, 64, 1, 1)).done) << "CXT_CTL, CXT_STS, the new keys";
  EXPECT_TRUE(m_.equal(from, to, 64));
  EXPECT_EQ(m_.read_index(c), 101u);
  EXPECT_TRUE(m_.execute(c, copy(from, to, 64, 0, 0)).er) << "AKey 0 of the old table";
  EXPECT_TRUE(peer.execute(other, copy(theirs, to, 64, 0, 2)).er) << "the RKey";
}

// One message of a client brings thousands of register writes.
TEST_F(FunctionStateTest, AHaltLooksForNoContextsIfNoneIsActive) {
  const auto looked_at = [this] { return m_.device->contexts().statistics().looked_at; };
  m_.activate();
  EXPECT_TRUE(m_.execute(m_.start_context(5), nop()).done);
  m_.request(fn_gsr::GSRV_RESET);
  const auto before = looked_at();
  EXPECT_EQ(before, 6u) << "from context 0 to the only one";
  for (int i = 0; i != 3; ++i) {
    EXPECT_EQ(m_.gsv(), fn_gsv::GSV_ERROR);
    m_.request(fn_gsr::GSRV_RESET);
    m_.request(fn_gsr::GSRV_ACTIVE);
    m_.request(fn_gsr::GSRV_RESET);
  }
  EXPECT_EQ(looked_at(), before);
}

// D-065
TEST_F(FunctionStateTest, StateSavedAtStopResumesInAFreshFunction) {
  m_.activate();
  m_.make_rkeys();
  m_.write32(0, 0xabcde << 8 | 1u << 4 | 3);  // fn_pasid, fn_err_intr_en; fn_gsr unchanged
  m_.write32(4, 0xcafe);                      // fn_grp_id
  m_.write(reg::MMIO_GRP_ENUM, 2);            // probe
  m_.set_field<spec::mmio_ctl2>(reg::MMIO_CTL2, spec::mmio_ctl2::max_cxt, 100);
  auto& failing = m_.start_context(2);
  m_.execute(failing, copy(0x1000, Machine::kBase, 8));
  ASSERT_EQ(m_.records(), 1u);
  m_.write(reg::MMIO_ERR_STS, 1);
  m_.write(reg::MMIO_ERR_RD, 1);
  auto& c = begin_long_copy(m_);
  m_.submit(c, copy(from_ + 64, to_ + 64, 4096));
  m_.request(fn_gsr::GSRV_STOP_SF);
  m_.run();
  ASSERT_EQ(m_.gsv(), fn_gsv::GSV_STOP);
  ASSERT_EQ(m_.read_index(c), 1u);
  // Every register that software can write and read, with MMIO_ERR_CFG last (SDXI 3.4.2).
  constexpr std::array kSaved{reg::MMIO_CTL0,    reg::MMIO_GRP_ENUM, reg::MMIO_CTL2,
                              reg::MMIO_CXT_L2,  reg::MMIO_RKEY,     reg::MMIO_ERR_CTL,
                              reg::MMIO_ERR_WRT, reg::MMIO_ERR_RD,   reg::MMIO_ERR_CFG};
  std::map<reg, std::uint64_t> values;
  for (const auto name : kSaved) values[name] = m_.read(name);

  FunctionGroup group, elsewhere;
  const Machine reset(elsewhere);
  Machine fresh(group);
  std::memcpy(fresh.host(Machine::kBase), m_.host(Machine::kBase), Machine::kMemory);
  for (const auto name : kSaved) fresh.write(name, values[name]);
  for (const auto name : kSaved) {
    EXPECT_EQ(fresh.read(name), values[name]) << to_string(name);
    EXPECT_NE(fresh.read(name), reset.read(name)) << to_string(name) << " shows nothing";
  }
  auto admin = m_.context(0);
  fresh.set_state(admin, cxtv::CXTV_RUN);  // the jump start of SDXI 4.3.4
  fresh.request(fn_gsr::GSRV_ACTIVE);
  fresh.run();
  fresh.submit(admin,
               start(1, 1, spec::kDoorbellFromWriteIndex, spec::admin_subtype::DSC_CXT_START_RS));
  fresh.run();
  EXPECT_EQ(fresh.state(c), cxtv::CXTV_RUN);
  EXPECT_EQ(fresh.read_index(c), 2u);
  EXPECT_TRUE(fresh.equal(from_ + 64, to_ + 64, 4096));
  // The error log continues after its last record, with an interrupt.
  fresh.submit(c, copy(0x1000, to_, 8));
  fresh.run();
  EXPECT_EQ(fresh.records(), 2u);
  EXPECT_EQ(fresh.interrupts(0), 1u);
  const util::View<spec::errlog_hd_ent> record(fresh.bytes(m_.record_at(1), 64));
  EXPECT_EQ(record.get(spec::errlog_hd_ent::vl), 1u);
  EXPECT_EQ(record.get(spec::errlog_hd_ent::cxt_num), 1u);
}

}  // namespace
}  // namespace softhca::sdxi::test
