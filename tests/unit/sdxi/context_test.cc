// SDXI 3.2, 4.2, 4.3: contexts and their tables.
#include <gtest/gtest.h>

#include "sdxi/context_machine.h"

namespace softhca::sdxi::test {
namespace {

using reg = spec::mmio_register;
using ent = spec::errlog_hd_ent;
using spec::admin_subtype;
using spec::cxtv;
using spec::fn_gsr;
using spec::fn_gsv;

// D-066 D-084
TEST_F(ContextTest, NothingAboveMaxCxtIsAccessed) {
  FunctionGroup group;
  Machine m(group, {.capabilities = {.max_cxt = 300}}, nullptr, Machine::Memory::kTraced);
  m.activate();
  auto& c = m.make_context(260, 16, cxtv::CXTV_RUN);
  m.set_field<spec::mmio_ctl2>(reg::MMIO_CTL2, spec::mmio_ctl2::max_cxt, 259);
  m.submit(c, nop());
  m.run();
  EXPECT_FALSE(m.trace.touched(c.l1, 32));
  EXPECT_TRUE(m.admin(start(260, 260)).er);
  EXPECT_FALSE(m.trace.touched(c.l1, 32));
  EXPECT_EQ(m.record(0).get(ent::err_class), 0x2330u);
}

TEST_F(ContextTest, AContextNumberIsNineBitsOfLevel2AndSevenOfLevel1) {
  FunctionGroup group;
  Machine m(group, {.capabilities = {.max_cxt = 1000}});
  m.activate();
  auto& c = m.start_context(900);
  EXPECT_EQ(m.state(c), cxtv::CXTV_RUN);
  m.submit(c, nop());
  m.run();
  EXPECT_EQ(m.read_index(c), 1u);
}

// D-067 D-075 D-076 D-077 D-128
TEST_F(ContextTest, AnEntryWithVlZeroIsInvalidAndItsDoorbellIsIgnoredSilently) {
  auto& c = m_.make_context(4, 16, cxtv::CXTV_RUN);
  m_.push(c, nop());
  const auto without = [&](auto view, auto field) {
    view.set(field, 0);
    m_.doorbell(4, 1);
    m_.run();
    EXPECT_EQ(m_.read_index(c), 0u);
    view.set(field, 1);
  };
  without(m_.at<spec::cxt_ctl>(c.ctl), spec::cxt_ctl::vl);
  without(m_.at<spec::cxt_l1_ent>(c.l1), spec::cxt_l1_ent::vl);
  EXPECT_EQ(m_.records(), 0u);
  // With all valid bits set, CXT_STS decides the state.
  EXPECT_TRUE(m_.admin(update_contexts(4, 4, spec::tgt_pcd::UPD_L1)).done);
  EXPECT_TRUE(m_.admin(sync(spec::sync_filter::SYNC_CXT, 4, 4)).done);
  m_.doorbell(4, 1);
  m_.run();
  EXPECT_EQ(m_.read_index(c), 1u);
}

// D-067: applies at each of the three levels, whatever the other bits are. The pointers lead to no
// memory, so a read through them would add an error record.
TEST_F(ContextTest, WithVlZeroTheOtherFieldsOfAnEntryAreNotLookedAt) {
  auto& c = m_.make_context(4, 16, cxtv::CXTV_RUN);
  m_.push(c, nop());
  for (const auto& [at, size] :
       {std::pair{c.ctl, 64u}, std::pair{c.l1, 32u}, std::pair{m_.l2_entry(4), 8u}}) {
    const std::vector<std::byte> sound(m_.host(at), m_.host(at) + size);
    std::memset(m_.host(at), 0xfe, size);  // vl is bit 0
    m_.doorbell(4, 1);
    m_.run();
    EXPECT_EQ(m_.read_index(c), 0u);
    EXPECT_EQ(m_.records(), 0u) << at - Machine::kBase;
    std::ranges::copy(sound, m_.host(at));
  }
  m_.doorbell(4, 1);
  m_.run();
  EXPECT_EQ(m_.read_index(c), 1u);
}

// D-077: CXT_STS gives the state of a context that becomes valid. The context handles doorbells
// only in CXTV_RUN.
TEST_F(ContextTest, AContextThatBecomesValidIsInTheStateOfItsStatus) {
  using enum cxtv;
  for (const auto state : {CXTV_RUN, CXTV_STOP_SW, CXTV_STOP_FN, CXTV_ERR_FN}) {
    auto& c = m_.make_context(4, 16, state);
    const auto entry = m_.at<spec::cxt_l1_ent>(c.l1);
    entry.set(spec::cxt_l1_ent::vl, 0);
    m_.push(c, nop());
    m_.doorbell(4, 1);
    m_.run();
    EXPECT_EQ(m_.read_index(c), 0u);
    entry.set(spec::cxt_l1_ent::vl, 1);
    EXPECT_FALSE(m_.admin(update_contexts(4, 4, spec::tgt_pcd::UPD_L1)).er);
    EXPECT_FALSE(m_.admin(sync(spec::sync_filter::SYNC_CXT, 4, 4)).er);
    m_.doorbell(4, 1);
    m_.run();
    EXPECT_EQ(m_.state(c), state);
    EXPECT_EQ(m_.read_index(c), state == CXTV_RUN ? 1u : 0u) << to_string(state);
    EXPECT_FALSE(m_.admin(start_rs(4, 4)).er);
    const bool starts = state == CXTV_RUN || state == CXTV_STOP_FN;
    EXPECT_EQ(m_.state(c), starts ? CXTV_RUN : state) << to_string(state);
    EXPECT_FALSE(m_.admin(stop(4, 4)).er);
    EXPECT_FALSE(m_.admin(sync(spec::sync_filter::SYNC_STOP, 4, 4)).er);
  }
  EXPECT_EQ(m_.records(), 0u);
}

// D-085
TEST_F(ContextTest, AnEntryThatChangesWhileItIsReadIsNeverUsedHalf) {
  FunctionGroup group;
  Machine m(group, {}, nullptr, Machine::Memory::kTraced);
  m.activate();
  auto& c = m.make_context(4, 16, cxtv::CXTV_RUN);
  m.push(c, nop());
  bool once = true;
  m.trace.on_read = [&](Iova at) {
    // After the device has read the entry and before it uses it, software makes the entry invalid
    // and fills it with garbage.
    if (at != c.l1 || !once) return;
    once = false;
    std::memset(m.host(c.l1), 0xfe, 32);
  };
  m.doorbell(4, 1);
  m.run();
  EXPECT_FALSE(once);
  EXPECT_EQ(m.read_index(c), 0u);
  EXPECT_EQ(m.records(), 0u);
}

// D-071
TEST_F(ContextTest, CsaHasNoEffect) {
  auto& c = m_.make_context(4);
  m_.at<spec::cxt_ctl>(c.ctl).set(spec::cxt_ctl::csa, 1);
  EXPECT_FALSE(m_.admin(start(4, 4)).er);
  auto d = nop();
  header(d).set(spec::dsc_header::csr, 0);
  EXPECT_TRUE(m_.execute(c, d).done);
}

// D-073
TEST_F(ContextTest, RshIsNeverReadOrWritten) {
  auto& c = m_.make_context(4);
  m_.at<spec::cxt_sts>(c.sts).set(spec::cxt_sts::rsh, 1);
  EXPECT_FALSE(m_.admin(start(4, 4)).er);
  m_.submit(c, nop());
  m_.run();
  EXPECT_FALSE(m_.admin(stop(4, 4)).er);
  EXPECT_EQ(m_.state(c), cxtv::CXTV_STOP_SW);
  EXPECT_EQ(m_.at<spec::cxt_sts>(c.sts).get(spec::cxt_sts::rsh), 1u);
}

// D-066: a context that was running before the limit was lowered.
TEST_F(ContextTest, ALimitThatIsLoweredKeepsTheTablesAboveItUntouched) {
  FunctionGroup group;
  Machine m(group, {.capabilities = {.max_cxt = 300}}, nullptr, Machine::Memory::kTraced);
  m.activate();
  auto& c = m.start_context(5);
  const auto from = m.allocate(16u << 20), to = m.allocate(16u << 20);
  m.submit(c, copy(from, to, 16u << 20));
  m.step();
  m.set_field<spec::mmio_ctl2>(reg::MMIO_CTL2, spec::mmio_ctl2::max_cxt, 3);
  m.trace.accesses.clear();
  EXPECT_FALSE(m.admin(make(spec::dsc_type::ADMIN_GRP, spec::admin_subtype::DSC_FN_UPD)).er);
  m.submit(c, nop());
  m.run();
  EXPECT_EQ(m.read_index(c), 1u) << "the copy ends, and the doorbell counts for nothing";
  EXPECT_FALSE(m.trace.touched(c.l1, 32));
  m.request(fn_gsr::GSRV_STOP_SF);
  m.run();
  EXPECT_EQ(m.gsv(), fn_gsv::GSV_STOP);
  EXPECT_FALSE(m.trace.touched(c.l1, 32));
  EXPECT_EQ(m.state(c), cxtv::CXTV_STOP_FN) << "all contexts have a final state";
}

// D-066: a doorbell that was received before the limit was lowered, and not yet evaluated.
TEST_F(ContextTest, ADoorbellThatWaitsReadsNoTablesAboveALoweredLimit) {
  FunctionGroup group;
  Machine m(group, {.capabilities = {.max_cxt = 300}}, nullptr, Machine::Memory::kTraced);
  m.activate();
  auto& c = m.make_context(5, 16, cxtv::CXTV_RUN);
  m.push(c, nop());
  m.doorbell(5, 1);
  m.set_field<spec::mmio_ctl2>(reg::MMIO_CTL2, spec::mmio_ctl2::max_cxt, 4);
  m.trace.accesses.clear();
  m.run();
  EXPECT_FALSE(m.trace.touched(c.l1, 32));
  EXPECT_EQ(m.read_index(c), 0u);
  m.set_field<spec::mmio_ctl2>(reg::MMIO_CTL2, spec::mmio_ctl2::max_cxt, 5);
  m.doorbell(5, 1);
  m.run();
  EXPECT_EQ(m.read_index(c), 1u) << "at the limit it counts";
}

// D-083
TEST_F(ContextTest, AnIllegalStateWriteStaysInsideTheContext) {
  auto& a = m_.start_context(4);
  auto& b = m_.start_context(5);
  m_.submit(a, nop());
  m_.run();
  m_.at<spec::cxt_sts>(a.sts).set(spec::cxt_sts::state, 13);
  m_.submit(a, nop());
  m_.submit(b, nop());
  m_.run();
  EXPECT_EQ(m_.read_index(b), 1u);
  EXPECT_EQ(m_.gsv(), fn_gsv::GSV_ACTIVE);
}

}  // namespace
}  // namespace softhca::sdxi::test
