// SDXI 4.3.1, 6.6: updates, synchronization, and the ranges of administrative operations.
#include <gtest/gtest.h>

#include "sdxi/active_machine.h"

namespace softhca::sdxi::test {
namespace {

using reg = spec::mmio_register;
using ent = spec::errlog_hd_ent;
using spec::admin_subtype;
using spec::cxtv;

using ContextUpdateTest = ActiveMachineTest;

// D-111 D-112 D-114 D-113
TEST_F(ContextUpdateTest, UpdatesMakeChangedStructuresEffectiveAndIgnoreInvalidContexts) {
  auto& c = m_.start_context(4);
  m_.submit(c, nop());
  m_.run();
  const auto from = m_.allocate(3u << 20), to = m_.allocate(3u << 20);
  m_.at<spec::cxt_l1_ent>(c.l1).set(spec::cxt_l1_ent::max_buffer, 0);
  for (const auto level : {spec::tgt_pcd::UPD_L2, spec::tgt_pcd::UPD_L1, spec::tgt_pcd::UPD_CTL}) {
    EXPECT_FALSE(m_.admin(update_contexts(0, 100, level)).er);
  }
  EXPECT_TRUE(m_.admin(sync(spec::sync_filter::SYNC_CXT, 4, 4)).done);
  EXPECT_EQ(m_.records(), 0u);
  EXPECT_TRUE(m_.execute(c, copy(from, to, 3u << 20)).er);
}

TEST_F(ContextUpdateTest, KeyUpdatesComplete) {
  m_.make_rkeys();
  m_.start_context(4);
  auto akey = admin_range<spec::dsc_akey_upd>(admin_subtype::DSC_AKEY_UPD, 4, 9);
  edit<spec::dsc_akey_upd>(akey).set(spec::dsc_akey_upd::akey_end, 255);
  EXPECT_FALSE(m_.admin(akey).er);
  auto rkey = make(spec::dsc_type::ADMIN_GRP, admin_subtype::DSC_RKEY_UPD);
  edit<spec::dsc_rkey_upd>(rkey).set(spec::dsc_rkey_upd::rkey_end, 255);
  EXPECT_FALSE(m_.admin(rkey).er);
  EXPECT_FALSE(m_.admin(make(spec::dsc_type::ADMIN_GRP, admin_subtype::DSC_FN_UPD)).er);
  for (const auto filter : {spec::sync_filter::SYNC_AKEY, spec::sync_filter::SYNC_RKEY}) {
    EXPECT_TRUE(m_.admin(sync(filter, 4, 4)).done);
  }
}

// D-115
TEST_F(ContextUpdateTest, IndexRangesAreChecked) {
  m_.make_rkeys();
  m_.make_context(4);
  auto akey = admin_range<spec::dsc_akey_upd>(admin_subtype::DSC_AKEY_UPD, 4, 4);
  edit<spec::dsc_akey_upd>(akey).set(spec::dsc_akey_upd::akey_end, 256);
  auto rkey = make(spec::dsc_type::ADMIN_GRP, admin_subtype::DSC_RKEY_UPD);
  edit<spec::dsc_rkey_upd>(rkey).set(spec::dsc_rkey_upd::rkey_end, 256);
  auto order = make(spec::dsc_type::ADMIN_GRP, admin_subtype::DSC_RKEY_UPD);
  edit<spec::dsc_rkey_upd>(order).set(spec::dsc_rkey_upd::rkey_start, 3);
  const std::array wrong{start(5, 4),
                         start(4, 128),
                         stop(5, 4),
                         stop(0, 200),
                         update_contexts(3, 2),
                         akey,
                         rkey,
                         order,
                         sync(spec::sync_filter::SYNC_CXT, 9, 8),
                         sync(spec::sync_filter::SYNC_STOP, 0, 128)};
  std::uint64_t records = 0;
  for (const auto& d : wrong) {
    EXPECT_TRUE(m_.admin(d).er);
    ASSERT_EQ(m_.records(), ++records);
    EXPECT_EQ(m_.record(records - 1).get(ent::step), 7u);
    EXPECT_EQ(m_.record(records - 1).get(ent::cxt_num), 0u);
    EXPECT_EQ(m_.record(records - 1).get(ent::div), 1u);
    restart();
  }
}

// D-115: the limits that ranges are checked against must not exceed the capabilities.
TEST_F(ContextUpdateTest, LimitsAboveTheCapabilitiesFailAnyRange) {
  const auto akey = admin_range<spec::dsc_akey_upd>(admin_subtype::DSC_AKEY_UPD, 4, 4);
  const auto rkey = make(spec::dsc_type::ADMIN_GRP, admin_subtype::DSC_RKEY_UPD);
  using ctl2 = spec::mmio_ctl2;
  struct Case {
    const char* what;
    const Descriptor& d;
    unsigned err_class;
    void (*spoil)(Machine&);
  };
  const auto range = update_contexts(4, 4);
  const std::array cases{
      Case{"CXT_L1_ENT.akey_sz above MMIO_CTL2.max_akey_sz", akey, 0x2320,
           [](Machine& m) {
             m.at<spec::cxt_l1_ent>(m.context(4).l1).set(spec::cxt_l1_ent::akey_sz, 2);
             m.set_field<ctl2>(reg::MMIO_CTL2, ctl2::max_akey_sz, 1);
           }},
      Case{"MMIO_CTL2.max_akey_sz above MMIO_CAP1", akey, 0x2300,
           [](Machine& m) { m.set_field<ctl2>(reg::MMIO_CTL2, ctl2::max_akey_sz, 4); }},
      Case{
          "MMIO_RKEY.sz above MMIO_CAP0", rkey, 0x2300,
          [](Machine& m) { m.set_field<spec::mmio_rkey>(reg::MMIO_RKEY, spec::mmio_rkey::sz, 4); }},
      Case{"MMIO_CTL2.max_cxt above MMIO_CAP1", range, 0x2330,
           [](Machine& m) { m.set_field<ctl2>(reg::MMIO_CTL2, ctl2::max_cxt, 128); }}};
  for (const auto& one : cases) {
    SCOPED_TRACE(one.what);
    FunctionGroup group;
    Machine m(group, {.capabilities = {.max_akey_sz = 3, .max_rkey_sz = 3}});
    m.activate();
    m.make_rkeys();
    m.make_context(4);
    EXPECT_FALSE(m.admin(one.d).er) << "it is good until the limit is wrong";
    one.spoil(m);
    EXPECT_TRUE(m.admin(one.d).er);
    ASSERT_EQ(m.records(), 1u);
    EXPECT_EQ(m.record(0).get(ent::step), 7u);
    EXPECT_EQ(m.record(0).get(ent::err_class), one.err_class);
  }
}

// D-116 D-117
TEST_F(ContextUpdateTest, ARangeWithTwoBadContextsGivesOneRecord) {
  m_.make_context(4);
  m_.make_context(5, 16, cxtv::CXTV_ERR_FN);
  m_.make_context(6, 16, cxtv::CXTV_ERR_FN);
  const auto outcome = m_.admin(start(4, 6));
  EXPECT_TRUE(outcome.done);
  EXPECT_TRUE(outcome.er);
  EXPECT_EQ(m_.records(), 1u);
}

// D-094: a failed operation may be submitted again.
TEST_F(ContextUpdateTest, AFailedStartMayBeRepeatedAfterRemediation) {
  m_.make_context(4);
  auto& bad = m_.make_context(5, 16, cxtv::CXTV_ERR_FN);
  EXPECT_TRUE(m_.admin(start(4, 5)).er);
  m_.set_state(bad, cxtv::CXTV_STOP_SW);
  restart();
  EXPECT_FALSE(m_.admin(start(5, 5)).er);
  EXPECT_EQ(m_.state(bad), cxtv::CXTV_RUN);
}

// D-120: "all previously received MMIO doorbells are fully evaluated (i.e. there are no outstanding
// data structure reads due to a prior doorbell)".
TEST_F(ContextUpdateTest, ASyncCompletesAfterTheDoorbellsBeforeItAreEvaluated) {
  constexpr ContextNumber kContexts = 20;
  FunctionGroup group;
  // Each run() has budget for one evaluation.
  Machine m(group, {.run_bytes = 2048}, nullptr, Machine::Memory::kTraced);
  m.activate();
  for (ContextNumber i = 1; i <= kContexts; ++i) m.push(m.start_context(i), nop());
  auto d = sync(spec::sync_filter::SYNC_CXT, 1, kContexts);
  const auto block = m.attach_completion(d);
  m.trace.accesses.clear();
  m.submit(m.context(0), d);  // its own doorbell comes first
  for (ContextNumber i = 1; i <= kContexts; ++i) m.doorbell(i, 1);
  m.run(100000);
  const auto completed = m.trace.write_of(block);
  ASSERT_GE(completed, 0);
  for (ContextNumber i = 1; i <= kContexts; ++i) {
    const auto& c = m.context(i);
    const auto first = std::ranges::find_if(
        m.trace.accesses, [&](const Trace::Access& a) { return !a.write && a.at == c.l1; });
    EXPECT_LT(first - m.trace.accesses.begin(), completed) << i;
    EXPECT_EQ(m.read_index(c), 1u);
  }
}

// D-122
TEST_F(ContextUpdateTest, ReservedFiltersAndLevelsAreRefused) {
  auto filter = sync(spec::sync_filter::SYNC_CXT);
  edit<spec::dsc_sync>(filter).set(spec::dsc_sync::flt, 5);
  EXPECT_TRUE(m_.admin(filter).er);
  EXPECT_EQ(m_.record(0).get(ent::step), 7u);
  restart();
  auto level = update_contexts(0, 0);
  edit<spec::dsc_cxt_upd>(level).set(spec::dsc_cxt_upd::tgt_pcd, 5);
  EXPECT_TRUE(m_.admin(level).er);
}

}  // namespace
}  // namespace softhca::sdxi::test
