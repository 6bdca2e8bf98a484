// SDXI 3.5, 6.6: a PF's operations on the contexts of its VFs.
#include <gtest/gtest.h>

#include "sdxi/machine.h"

namespace softhca::sdxi::test {
namespace {

using ent = spec::errlog_hd_ent;
using spec::admin_subtype;
using spec::cxtv;
using spec::fn_gsr;

class PfToVfTest : public ::testing::Test {
 protected:
  PfToVfTest() { pf_.activate(), vf_.activate(); }
  template <class Layout>
  Descriptor on_vf(Descriptor d, std::uint32_t vf_num = 0) {
    edit<Layout>(d).set(Layout::vf, 1);
    edit<Layout>(d).set(Layout::vf_num, vf_num);
    return d;
  }
  void run() {
    for (int i = 0; i < 400; ++i) pf_.run(100), vf_.run(100);
  }
  Machine::Outcome admin(Descriptor d) {
    const auto block = pf_.attach_completion(d);
    pf_.submit(pf_.context(0), d);
    run();
    return {pf_.signal(block) == 0, pf_.er(block)};
  }
  /// Recovers after a failed administrative operation (SDXI 3.5).
  void restart_pf() {
    auto& c = pf_.context(0);
    pf_.request(fn_gsr::GSRV_STOP_SF);
    pf_.run();
    pf_.set_state(c, cxtv::CXTV_RUN);
    pf_.store64(c.write_index, pf_.read_index(c));
    pf_.request(fn_gsr::GSRV_ACTIVE);
    pf_.run();
    ASSERT_EQ(pf_.gsv(), spec::fn_gsv::GSV_ACTIVE);
  }
  FunctionGroup group_;
  Machine pf_{group_, {.vfs = 2}};
  Machine vf_{group_, {}, &pf_};
};

// D-218 D-111
TEST_F(PfToVfTest, APfStartsUpdatesAndSynchronizesContextsOfItsVf) {
  auto& c = vf_.make_context(4);
  vf_.push(c, nop());
  EXPECT_FALSE(admin(on_vf<spec::dsc_cxt_start>(start(4, 4, spec::kDoorbellFromWriteIndex))).er);
  EXPECT_EQ(vf_.state(c), cxtv::CXTV_RUN);
  EXPECT_EQ(vf_.read_index(c), 1u);
  EXPECT_FALSE(admin(on_vf<spec::dsc_cxt_upd>(update_contexts(4, 4))).er);
  EXPECT_TRUE(admin(on_vf<spec::dsc_sync>(sync(spec::sync_filter::SYNC_CXT, 4, 4))).done);
}

// D-218
TEST_F(PfToVfTest, AVfMayNotSetVf) {
  EXPECT_TRUE(vf_.admin(on_vf<spec::dsc_cxt_start>(start(0, 0))).er);
  EXPECT_EQ(vf_.records(), 1u);
}

TEST_F(PfToVfTest, AVfThatIsNotThereIsRefused) {
  EXPECT_TRUE(admin(on_vf<spec::dsc_cxt_start>(start(0, 0), 1)).er);
  EXPECT_EQ(pf_.records(), 1u);
}

// D-219
TEST_F(PfToVfTest, AVfThatIsNotActiveStartsNothing) {
  auto& c = vf_.make_context(4);
  vf_.request(fn_gsr::GSRV_STOP_SF);
  vf_.run();
  EXPECT_FALSE(
      admin(on_vf<spec::dsc_cxt_start>(start(4, 4, std::nullopt, admin_subtype::DSC_CXT_START_RS)))
          .er);
  EXPECT_EQ(vf_.state(c), cxtv::CXTV_STOP_SW);
}

// D-041 D-219, SDXI 4.1.1: "not enabled to process any memory data structures or perform DMA".
TEST_F(PfToVfTest, OperationsOnAVfThatIsNotEnabledReachNoneOfItsMemory) {
  FunctionGroup group;
  Machine pf(group, {.vfs = 1});
  Machine vf(group, {}, &pf, Machine::Memory::kTraced);
  pf.activate();
  vf.make_tables();
  vf.make_error_log();
  auto& c = vf.make_context(4, 16, cxtv::CXTV_RUN);
  vf.make_rkeys();
  const auto rs = admin_subtype::DSC_CXT_START_RS;
  const std::array harmless{
      on_vf<spec::dsc_cxt_stop>(stop(4, 4)),
      on_vf<spec::dsc_cxt_stop>(stop(4, 4, true)),
      on_vf<spec::dsc_cxt_start>(start(4, 4, spec::kDoorbellFromWriteIndex, rs)),
      on_vf<spec::dsc_cxt_upd>(update_contexts(4, 4)),
      on_vf<spec::dsc_akey_upd>(admin_range<spec::dsc_akey_upd>(admin_subtype::DSC_AKEY_UPD, 4, 4)),
      on_vf<spec::dsc_fn_upd>(make(spec::dsc_type::ADMIN_GRP, admin_subtype::DSC_FN_UPD)),
      on_vf<spec::dsc_rkey_upd>(make(spec::dsc_type::ADMIN_GRP, admin_subtype::DSC_RKEY_UPD)),
      on_vf<spec::dsc_sync>(sync(spec::sync_filter::SYNC_CXT, 4, 4)),
      on_vf<spec::dsc_sync>(sync(spec::sync_filter::SYNC_STOP, 4, 4)),
      on_vf<spec::dsc_sync>(sync(spec::sync_filter::SYNC_AKEY, 4, 4)),
      on_vf<spec::dsc_sync>(sync(spec::sync_filter::SYNC_RKEY)),
      on_vf<spec::dsc_sync>(sync(spec::sync_filter::SYNC_FN))};
  for (const bool failed : {false, true}) {
    if (failed) {  // GSV_ERROR
      vf.request(fn_gsr::GSRV_ACTIVE);
      vf.request(fn_gsr::GSRV_RESET);
      ASSERT_EQ(vf.gsv(), spec::fn_gsv::GSV_ERROR);
      vf.trace.accesses.clear();
    }
    for (std::size_t i = 0; i < harmless.size(); ++i) {
      const auto outcome = pf.admin(harmless[i]);
      vf.run();
      EXPECT_TRUE(outcome.done && !outcome.er) << i;
      EXPECT_TRUE(vf.trace.accesses.empty()) << i;
    }
  }
  EXPECT_EQ(vf.state(c), cxtv::CXTV_RUN);
  // The PF must report the reason: the VF may not even write its log.
  EXPECT_TRUE(pf.admin(on_vf<spec::dsc_cxt_start>(start(4, 4))).er);
  EXPECT_TRUE(vf.trace.accesses.empty());
  ASSERT_EQ(pf.records(), 1u);
  EXPECT_EQ(pf.record(0).get(ent::step), 7u);
  EXPECT_EQ(pf.record(0).get(ent::re), 1u);
  EXPECT_EQ(pf.record(0).get(ent::cxt_num), 0u);
  EXPECT_EQ(pf.record(0).get(ent::err_class), 0x2000u);
}

// D-220
TEST_F(PfToVfTest, APfsStopEndsInStopFnByWayOfStopgFn) {
  auto& c = vf_.start_context(4);
  const auto from = vf_.allocate(16u << 20), to = vf_.allocate(16u << 20);
  vf_.submit(c, copy(from, to, 16u << 20));
  vf_.step();
  pf_.submit(pf_.context(0), on_vf<spec::dsc_cxt_stop>(stop(4, 4)));
  pf_.step();
  EXPECT_EQ(vf_.state(c), cxtv::CXTV_STOPG_FN);
  run();
  EXPECT_EQ(vf_.state(c), cxtv::CXTV_STOP_FN);
}

// D-221
TEST_F(PfToVfTest, FailuresAreLoggedByTheVf) {
  vf_.make_context(4, 16, cxtv::CXTV_ERR_FN);
  EXPECT_TRUE(admin(on_vf<spec::dsc_cxt_start>(start(4, 4))).er);
  EXPECT_EQ(vf_.records(), 1u);
  EXPECT_EQ(vf_.record(0).get(ent::cxt_num), 4u);
  EXPECT_EQ(vf_.record(0).get(ent::re), 0u) << "no context of the VF has stopped";
  EXPECT_EQ(pf_.records(), 0u);
}

// D-221, Table 3-10: the record names the one context of several that failed.
TEST_F(PfToVfTest, TheVfsRecordNamesTheContextThatCannotBeStarted) {
  for (const ContextNumber number : {4, 5, 6, 8, 9}) vf_.make_context(number);
  EXPECT_TRUE(admin(on_vf<spec::dsc_cxt_start>(start(4, 9))).er);
  ASSERT_EQ(vf_.records(), 1u);
  const auto record = vf_.record(0);
  EXPECT_EQ(record.get(ent::cv), 1u);
  EXPECT_EQ(record.get(ent::cxt_num), 7u);
  EXPECT_EQ(record.get(ent::div), 0u) << "the VF has no descriptor of it";
  EXPECT_EQ(record.get(ent::step), static_cast<unsigned>(spec::err_step::ERRV_CXT_STS))
      << "a step that requires none";
}

// D-221, Table 3-10: a step from 7 to 11 needs a descriptor index, and the VF has none. For a range
// the record names no context, and above all not context 0, which is sound.
TEST_F(PfToVfTest, TheVfsRecordNamesNeitherADescriptorNorASoundContext) {
  vf_.make_context(4);
  vf_.make_rkeys();
  auto rkeys = make(spec::dsc_type::ADMIN_GRP, admin_subtype::DSC_RKEY_UPD);
  edit<spec::dsc_rkey_upd>(rkeys).set(spec::dsc_rkey_upd::rkey_end, 0xffff);
  auto rkeys_sync = sync(spec::sync_filter::SYNC_RKEY);
  edit<spec::dsc_sync>(rkeys_sync).set(spec::dsc_sync::key_end, 0xffff);
  const std::array ranges{
      on_vf<spec::dsc_cxt_start>(start(5, 4)),
      on_vf<spec::dsc_cxt_stop>(stop(4, 0xffff)),
      on_vf<spec::dsc_cxt_upd>(update_contexts(5, 4)),
      on_vf<spec::dsc_akey_upd>(admin_range<spec::dsc_akey_upd>(admin_subtype::DSC_AKEY_UPD, 5, 4)),
      on_vf<spec::dsc_rkey_upd>(rkeys),
      on_vf<spec::dsc_sync>(sync(spec::sync_filter::SYNC_CXT, 5, 4)),
      on_vf<spec::dsc_sync>(rkeys_sync)};
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    EXPECT_TRUE(admin(ranges[i]).er) << i;
    ASSERT_EQ(vf_.records(), i + 1);
    const auto record = vf_.record(i);
    EXPECT_EQ(record.get(ent::step), static_cast<unsigned>(spec::err_step::ERRV_INT)) << i;
    EXPECT_EQ(record.get(ent::sub_step), 3u) << i;
    EXPECT_EQ(record.get(ent::cv), 0u) << i;
    EXPECT_EQ(record.get(ent::cxt_num), 0u) << i;
    EXPECT_EQ(record.get(ent::div), 0u) << i;
    restart_pf();
  }
}

// D-221
TEST_F(PfToVfTest, TheVfsRecordNamesTheContextWhoseRingOrKeysFail) {
  auto& ring = vf_.make_context(4);
  vf_.make_context(5);
  spec::set_address(vf_.at<spec::cxt_ctl>(ring.ctl), spec::cxt_ctl::ds_ring_ptr, 0x1000);
  auto keys = admin_range<spec::dsc_akey_upd>(admin_subtype::DSC_AKEY_UPD, 5, 5);
  edit<spec::dsc_akey_upd>(keys).set(spec::dsc_akey_upd::akey_end, 0xffff);
  const std::array failing{std::pair{on_vf<spec::dsc_cxt_start>(start(4, 4)), 4u},
                           std::pair{on_vf<spec::dsc_cxt_stop>(stop(4, 4)), 4u},
                           std::pair{on_vf<spec::dsc_akey_upd>(keys), 5u}};
  for (std::size_t i = 0; i < failing.size(); ++i) {
    EXPECT_TRUE(admin(failing[i].first).er) << i;
    ASSERT_EQ(vf_.records(), i + 1);
    const auto record = vf_.record(i);
    EXPECT_EQ(record.get(ent::step), static_cast<unsigned>(spec::err_step::ERRV_INT)) << i;
    EXPECT_EQ(record.get(ent::cv), 1u) << i;
    EXPECT_EQ(record.get(ent::cxt_num), failing[i].second) << i;
    EXPECT_EQ(record.get(ent::div), 0u) << i;
    restart_pf();
  }
}

// D-119 D-222
TEST_F(PfToVfTest, SyncStopOfAPfWaitsForALocalStopOfTheVf) {
  auto& c = vf_.start_context(4);
  const auto from = vf_.allocate(16u << 20), to = vf_.allocate(16u << 20);
  vf_.submit(c, copy(from, to, 16u << 20));
  vf_.step();
  vf_.submit(vf_.context(0), stop(4, 4));
  vf_.step();
  ASSERT_EQ(vf_.state(c), cxtv::CXTV_STOPG_SW);
  auto d = on_vf<spec::dsc_sync>(sync(spec::sync_filter::SYNC_STOP, 4, 4));
  const auto block = pf_.attach_completion(d);
  pf_.submit(pf_.context(0), d);
  pf_.step();
  EXPECT_EQ(pf_.signal(block), 1u);
  run();
  EXPECT_EQ(vf_.state(c), cxtv::CXTV_STOP_SW);
  EXPECT_EQ(pf_.signal(block), 0u);
}

// D-222: vf and vf_num select the function whose stops are awaited.
TEST_F(PfToVfTest, SyncStopWaitsForTheVfThatItNames) {
  Machine second(group_, {}, &pf_);
  second.activate();
  auto& c = second.start_context(4);
  const auto size = 16u << 20;
  const auto from = second.allocate(size), to = second.allocate(size);
  second.submit(c, copy(from, to, size));
  second.step();
  second.submit(second.context(0), stop(4, 4));
  second.step();
  ASSERT_EQ(second.state(c), cxtv::CXTV_STOPG_SW);
  const auto completes = [this](Descriptor d) {
    const auto block = pf_.attach_completion(d);
    pf_.submit(pf_.context(0), d);
    for (int i = 0; i < 3; ++i) pf_.step();
    return pf_.signal(block) == 0;
  };
  EXPECT_TRUE(completes(on_vf<spec::dsc_sync>(sync(spec::sync_filter::SYNC_STOP, 4, 4), 0)));
  EXPECT_TRUE(completes(sync(spec::sync_filter::SYNC_STOP, 4, 4)));
  EXPECT_FALSE(completes(on_vf<spec::dsc_sync>(sync(spec::sync_filter::SYNC_STOP, 4, 4), 1)));
  second.run(), pf_.run();
  EXPECT_EQ(second.state(c), cxtv::CXTV_STOP_SW);
  EXPECT_TRUE(completes(on_vf<spec::dsc_sync>(sync(spec::sync_filter::SYNC_STOP, 4, 4), 1)));
}

/// D-118: an update and its DSC_SYNC, both local or both from the PF for the same VF. After the
/// DSC_SYNC has completed, every new descriptor uses the changed structures.
class SyncScopeTest : public PfToVfTest, public ::testing::WithParamInterface<bool> {
 protected:
  /// The function that owns the context, and the way to update its structures.
  Machine& target() { return GetParam() ? vf_ : pf_; }
  template <class Update>
  void synchronize(const Descriptor& update, spec::sync_filter filter) {
    auto barrier = sync(filter, 4, 4);
    if (!GetParam()) {
      EXPECT_FALSE(admin(update).er);
      EXPECT_TRUE(admin(barrier).done);
    } else {
      EXPECT_FALSE(admin(on_vf<Update>(update)).er);
      EXPECT_TRUE(admin(on_vf<spec::dsc_sync>(barrier)).done);
    }
  }
  Machine::Outcome execute(const Machine::Context& c, Descriptor d) {
    const auto block = target().attach_completion(d);
    target().submit(c, d);
    run();
    return {target().signal(block) == 0, target().er(block)};
  }
};

INSTANTIATE_TEST_SUITE_P(LocalAndPfToVf, SyncScopeTest, ::testing::Bool());

TEST_P(SyncScopeTest, ContextUpdates) {
  auto& m = target();
  auto& c = m.start_context(4);
  const auto from = m.allocate(3u << 20), to = m.allocate(3u << 20);
  EXPECT_FALSE(execute(c, copy(from, to, 3u << 20)).er);
  m.at<spec::cxt_l1_ent>(c.l1).set(spec::cxt_l1_ent::max_buffer, 0);
  synchronize<spec::dsc_cxt_upd>(update_contexts(4, 4, spec::tgt_pcd::UPD_L1),
                                 spec::sync_filter::SYNC_CXT);
  EXPECT_TRUE(execute(c, copy(from, to, 3u << 20)).er);
}

TEST_P(SyncScopeTest, FunctionUpdates) {
  auto& m = target();
  auto& c = m.start_context(4);
  const auto at = m.allocate(8, 8);
  const auto add = atomic(spec::atomic_subtype::DSC_ATM_UADD, at, 8, 1);
  EXPECT_FALSE(execute(c, add).er);
  m.at<spec::cxt_l1_ent>(c.l1).set(spec::cxt_l1_ent::opb_000_enb, 0);
  synchronize<spec::dsc_fn_upd>(make(spec::dsc_type::ADMIN_GRP, admin_subtype::DSC_FN_UPD),
                                spec::sync_filter::SYNC_FN);
  execute(c, add);
  EXPECT_EQ(m.state(c), cxtv::CXTV_ERR_FN);
}

TEST_P(SyncScopeTest, AKeyUpdates) {
  auto& m = target();
  auto& c = m.start_context(4);
  const auto from = m.allocate(64), to = m.allocate(64);
  EXPECT_FALSE(execute(c, copy(from, to, 64)).er);
  m.akey(c, 0).set(spec::akey_ent::vl, 0);
  synchronize<spec::dsc_akey_upd>(
      admin_range<spec::dsc_akey_upd>(admin_subtype::DSC_AKEY_UPD, 4, 4),
      spec::sync_filter::SYNC_AKEY);
  EXPECT_TRUE(execute(c, copy(from, to, 64)).er);
}

TEST_P(SyncScopeTest, RKeyUpdates) {
  auto& m = target();
  auto& c = m.start_context(4);
  m.make_rkeys();
  m.rkey(0).set(spec::rkey_ent::vl, 1);
  m.rkey(0).set(spec::rkey_ent::req_sfunc, m.device->sfunc());
  m.akey(c, 2).set(spec::akey_ent::vl, 1);
  m.akey(c, 2).set(spec::akey_ent::tgt_sfunc, m.device->sfunc());
  const auto from = m.allocate(64), to = m.allocate(64);
  EXPECT_FALSE(execute(c, copy(from, to, 64, 2, 0)).er);
  m.rkey(0).set(spec::rkey_ent::vl, 0);
  synchronize<spec::dsc_rkey_upd>(make(spec::dsc_type::ADMIN_GRP, admin_subtype::DSC_RKEY_UPD),
                                  spec::sync_filter::SYNC_RKEY);
  EXPECT_TRUE(execute(c, copy(from, to, 64, 2, 0)).er);
}

}  // namespace
}  // namespace softhca::sdxi::test
