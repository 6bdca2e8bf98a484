// Software's duties when it sets up and tears down functions and contexts (the rows W-* of
// docs/sdxi.md): the accesses of src/driver/sdxi to the device are recorded.
#include <gmock/gmock.h>

#include "driver/sdxi/mailboxes.h"
#include "sdxi/watched_driver.h"

namespace softhca::driver::sdxi::test {
namespace {

using spec::admin_subtype;
using spec::cxtv;
using spec::fn_gsr;
using spec::fn_gsv;
using ::testing::ElementsAre;

class DriverSetUpTest : public WatchedDriverTest {
 protected:
  using WatchedDriverTest::WatchedDriverTest;

  /// Values written to MMIO_CTL0.fn_gsr, from access `from` on.
  std::vector<fn_gsr> requests(std::size_t from = 0) {
    std::vector<fn_gsr> values;
    for (auto i = host_.write_of(reg::MMIO_CTL0, from); i < host_.accesses.size();
         i = host_.write_of(reg::MMIO_CTL0, i + 1)) {
      values.push_back(static_cast<fn_gsr>(
          as<spec::mmio_ctl0>(host_.accesses[i].value).get(spec::mmio_ctl0::fn_gsr)));
    }
    return values;
  }
  bool reachable(pcie::Iova at, std::uint64_t size) {
    return device_.dma().translate(at, size, pcie::DmaAccess::kReadWrite) != nullptr;
  }
};

// W-01
TEST_F(DriverSetUpTest, TheFunctionHasTheAccessItNeedsToEveryStructure) {
  bring_up();
  const auto context = make_context();
  for (const std::uint16_t number : {std::uint16_t{0}, context->number()}) {
    const auto s = structures(number);
    ASSERT_TRUE(s);
    EXPECT_TRUE(reachable(s->slot(0), s->ring_entries() * 64));
    EXPECT_TRUE(reachable(spec::address(s->control, spec::cxt_ctl::cxt_sts_ptr), 16));
    EXPECT_TRUE(reachable(spec::address(s->control, spec::cxt_ctl::write_index_ptr), 8));
    EXPECT_TRUE(reachable(spec::address(s->entry, spec::cxt_l1_ent::akey_ptr), 4096));
  }
  EXPECT_TRUE(reachable(spec::address(as<spec::mmio_rkey>(read(reg::MMIO_RKEY)),  //
                                      spec::mmio_rkey::ptr),
                        4096));
  EXPECT_TRUE(reachable(
      spec::address(as<spec::mmio_err_cfg>(read(reg::MMIO_ERR_CFG)), spec::mmio_err_cfg::ptr),
      4096));
  const std::array work{Descriptor::nop()};
  const auto done = context->submit(work);
  ASSERT_TRUE(done && context->wait(*done));
  EXPECT_TRUE(function_->take_errors().empty());
}

// W-02, W-14: also if memory and number belonged to another context before.
TEST_F(DriverSetUpTest, StatusAndValidBitsAreZeroWhenAContextIsMadeValid) {
  bring_up();
  int starts = 0;
  watch_administration([&](admin_subtype subtype, const RawDescriptor& d) {
    if (subtype != admin_subtype::DSC_CXT_START_NM) return;
    const util::View<spec::dsc_cxt_start> start(d.bytes());
    const auto s =
        structures(static_cast<std::uint16_t>(start.get(spec::dsc_cxt_start::cxt_start)));
    ASSERT_TRUE(s && s->valid());
    EXPECT_EQ(util::load_le64(s->status.bytes().data()), 0u);
    EXPECT_EQ(s->status.get(spec::cxt_sts::read_index), 0u);
    for (std::uint64_t i = 0; i < s->ring_entries(); ++i) {
      EXPECT_EQ(header(descriptor(*s, i)).get(spec::dsc_header::vl), 0u);
    }
    ++starts;
  });
  for (int round = 0; round < 3; ++round) {
    const auto context = make_context(16);
    EXPECT_EQ(context->number(), 1);
    const std::array work{Descriptor::nop(), Descriptor::nop()};
    const auto done = context->submit(work);
    ASSERT_TRUE(done && context->wait(*done));
    host_.paused = true;  // valid descriptors stay in the ring
    ASSERT_TRUE(context->enqueue(work));
    host_.paused = false;
  }
  EXPECT_EQ(starts, 3);
}

// W-04, W-05, W-08
TEST_F(DriverSetUpTest, TheFunctionIsActivatedInTheOrderOfTheDocument) {
  host_.hook = [this](const Access& access) {
    if (!access.write) return;
    if (access.is(reg::MMIO_CTL2) || access.is(reg::MMIO_CXT_L2) || access.is(reg::MMIO_RKEY)) {
      EXPECT_EQ(gsv(), fn_gsv::GSV_STOP);
    }
    if (access.bar == kDoorbells) {
      EXPECT_EQ(gsv(), fn_gsv::GSV_ACTIVE);
    }
    if (!access.is(reg::MMIO_CTL0)) return;
    ASSERT_EQ(as<spec::mmio_ctl0>(access.value).get(spec::mmio_ctl0::fn_gsr),
              static_cast<std::uint32_t>(fn_gsr::GSRV_ACTIVE));
    const auto admin = structures(0);
    ASSERT_TRUE(admin && admin->valid());
    EXPECT_EQ(admin->state(), cxtv::CXTV_RUN);
    EXPECT_EQ(admin->write_index, 0u);
    EXPECT_EQ(admin->status.get(spec::cxt_sts::read_index), 0u);
  };
  bring_up();
  const auto ctl2 = host_.write_of(reg::MMIO_CTL2);
  const auto tables = host_.write_of(reg::MMIO_CXT_L2, ctl2);
  const auto mailboxes = host_.write_of(reg::MMIO_MB_CTL, tables);
  const auto log = host_.write_of(reg::MMIO_ERR_CFG, mailboxes);
  const auto active = host_.write_of(reg::MMIO_CTL0, log);
  EXPECT_LT(active, host_.accesses.size());
  for (const auto name : {reg::MMIO_CTL2, reg::MMIO_CXT_L2, reg::MMIO_ERR_CFG}) {
    EXPECT_EQ(host_.write_of(name, active), host_.accesses.size());
  }
  const auto doorbells = host_.select([](const Access& a) { return a.bar == kDoorbells; });
  ASSERT_FALSE(doorbells.empty());
  EXPECT_EQ(doorbells[0].at, 0u);
  host_.hook = nullptr;
  EXPECT_TRUE(make_context());  // the first administrative operations complete
}

// W-06
TEST_F(DriverSetUpTest, AFunctionIsStoppedSoftly) {
  bring_up();
  const auto from = host_.accesses.size();
  function_.reset();
  EXPECT_THAT(requests(from), ElementsAre(fn_gsr::GSRV_STOP_SF));
  EXPECT_EQ(gsv(), fn_gsv::GSV_STOP);
}

TEST_F(DriverSetUpTest, AFunctionThatDoesNotStopSoftlyIsStoppedHard) {
  bring_up();
  inject("context=0,do=hang-soft-stop");
  const auto from = host_.accesses.size();
  function_.reset();
  EXPECT_THAT(requests(from), ElementsAre(fn_gsr::GSRV_STOP_SF, fn_gsr::GSRV_STOP_HD));
  EXPECT_EQ(gsv(), fn_gsv::GSV_STOP);
}

// The function accepts GSRV_RESET in GSV_ERROR only. The driver can then only revoke its memory
// access.
TEST_F(DriverSetUpTest, AFunctionThatNeverStopsIsNoBusMasterAnyMore) {
  bring_up();
  inject("context=0,do=hang-stop");
  const auto from = host_.accesses.size();
  function_.reset();
  EXPECT_THAT(requests(from),
              ElementsAre(fn_gsr::GSRV_STOP_SF, fn_gsr::GSRV_STOP_HD, fn_gsr::GSRV_RESET));
  EXPECT_EQ(gsv(), fn_gsv::GSV_STOPG_HD);
  std::array<std::byte, 2> command{};
  device_.read_config(4, command);
  EXPECT_EQ(command[0] & std::byte{4}, std::byte{0});
}

TEST_F(DriverSetUpTest, AFunctionInGsvErrorIsReset) {
  auto ctl2 = as<spec::mmio_ctl2>(read(reg::MMIO_CTL2));
  ctl2.set(spec::mmio_ctl2::max_cxt, 5000);
  device_.write_bar(kRegisters, static_cast<std::uint64_t>(reg::MMIO_CTL2), ctl2.bytes());
  Value<spec::mmio_ctl0> ctl0;
  ctl0.set(spec::mmio_ctl0::fn_gsr, static_cast<std::uint32_t>(fn_gsr::GSRV_ACTIVE));
  device_.write_bar(kRegisters, static_cast<std::uint64_t>(reg::MMIO_CTL0), ctl0.bytes());
  host_.progress();
  ASSERT_EQ(gsv(), fn_gsv::GSV_ERROR);
  bring_up();
  EXPECT_THAT(requests(), ElementsAre(fn_gsr::GSRV_RESET, fn_gsr::GSRV_ACTIVE));
  EXPECT_EQ(gsv(), fn_gsv::GSV_ACTIVE);
}

// W-07
TEST_F(DriverSetUpTest, Context0IsTheFirstThatStartsAndTheLastThatStops) {
  bring_up();
  std::vector<std::unique_ptr<Context>> contexts;
  for (int i = 0; i < 3; ++i) contexts.push_back(make_context());
  const auto doorbells = host_.select([](const Access& a) { return a.bar == kDoorbells; });
  ASSERT_FALSE(doorbells.empty());
  EXPECT_EQ(doorbells[0].at, 0u);
  bool stopped = false;
  host_.hook = [&](const Access& access) {
    if (!access.write || !access.is(reg::MMIO_CTL0)) return;
    stopped = true;
    EXPECT_EQ(structures(0)->state(), cxtv::CXTV_RUN);
    for (std::uint16_t number = 1; number <= 3; ++number) EXPECT_FALSE(structures(number)->valid());
  };
  contexts.clear();
  EXPECT_FALSE(stopped);
  function_.reset();
  EXPECT_TRUE(stopped);
}

// W-07
TEST_F(DriverSetUpTest, AFunctionWhoseContext0HasFailedIsStoppedAndBroughtUpAgain) {
  bring_up();
  std::array bad{Descriptor::update_contexts(spec::tgt_pcd::UPD_L1, 1, 0)};
  ASSERT_FALSE(function_->administer(bad));
  EXPECT_FALSE(function_->make_context());
  function_.reset();
  EXPECT_EQ(gsv(), fn_gsv::GSV_STOP);
  bring_up();
  EXPECT_TRUE(make_context());
}

// W-09, W-10
TEST_F(DriverSetUpTest, EveryChangeOfATableIsFollowedByUpdateAndSync) {
  bring_up();
  std::vector<admin_subtype> seen;
  watch_administration(
      [&](admin_subtype subtype, const RawDescriptor&) { seen.push_back(subtype); });
  const auto taken = [&seen] { return std::exchange(seen, {}); };
  using enum admin_subtype;
  auto context = make_context();
  EXPECT_THAT(taken(), ElementsAre(DSC_CXT_UPD, DSC_SYNC, DSC_CXT_START_NM));
  const auto rkey = function_->grant(function_->capabilities().sfunc);
  ASSERT_TRUE(rkey);
  EXPECT_THAT(taken(), ElementsAre(DSC_RKEY_UPD, DSC_SYNC));
  const auto akey = context->akeys().reach(function_->capabilities().sfunc, *rkey);
  ASSERT_TRUE(akey);
  EXPECT_THAT(taken(), ElementsAre(DSC_AKEY_UPD, DSC_SYNC));
  ASSERT_TRUE(context->akeys().use_interrupt(1));
  EXPECT_THAT(taken(), ElementsAre(DSC_AKEY_UPD, DSC_SYNC));
  ASSERT_TRUE(context->akeys().release(*akey));
  EXPECT_THAT(taken(), ElementsAre(DSC_AKEY_UPD, DSC_SYNC));
  ASSERT_TRUE(function_->revoke(*rkey));
  EXPECT_THAT(taken(), ElementsAre(DSC_RKEY_UPD, DSC_SYNC));
  context.reset();
  EXPECT_THAT(taken(), ElementsAre(DSC_CXT_STOP, DSC_CXT_UPD, DSC_SYNC));
}

/// DevCtl2 of PCIe 5.0 7.5.3.16.
constexpr auto kDeviceControl2 = pcie::ConfigSpace::kExpressAt + 0x28;

// W-05: step 8 of 4.1.8.
TEST_F(DriverSetUpTest, AtomicRequestsAreEnabledInConfigurationSpace) {
  bring_up();
  EXPECT_TRUE(device_.config().atomic_requests_enabled());
  EXPECT_TRUE(function_->capabilities().atomics);
}

// W-28, 8.4
TEST_F(DriverSetUpTest, AtomicsAreRejectedWhereTheyCannotBeEnabled) {
  host_.dead_config = kDeviceControl2;
  bring_up();
  EXPECT_FALSE(function_->capabilities().atomics);
  auto context = make_context();
  const auto at = DmaBuffer::allocate(host_, 64);
  EXPECT_FALSE(context->atomic(spec::atomic_subtype::DSC_ATM_UADD, {at->iova()}, 8, 1));
}

// W-09, SDXI 4.3.1.2 steps 4a to 6: ring and CXT_STS belong to LVL_CXT_CTL.
TEST_F(DriverSetUpTest, ARecoveredContextIsUpdatedAndSynchronizedBeforeItStarts) {
  bring_up();
  auto context = make_context();
  const auto failing = context->copy({0x2000}, {0x1000}, 64);
  ASSERT_TRUE(failing && context->copy({0x2000}, {0x1000}, 64));
  EXPECT_FALSE(context->wait(*failing));
  ASSERT_EQ(context->state(), cxtv::CXTV_ERR_FN);
  std::vector<admin_subtype> seen;
  watch_administration([&](admin_subtype subtype, const RawDescriptor& d) {
    seen.push_back(subtype);
    if (subtype == admin_subtype::DSC_CXT_UPD) {
      using upd = spec::dsc_cxt_upd;
      const util::View<upd> update(d.bytes());
      EXPECT_EQ(update.get(upd::tgt_pcd), static_cast<unsigned>(spec::tgt_pcd::UPD_CTL));
      EXPECT_EQ(update.get(upd::cxt_start), context->number());
      EXPECT_EQ(update.get(upd::cxt_end), context->number());
      const auto s = structures(context->number());
      ASSERT_TRUE(s);
      EXPECT_EQ(s->state(), cxtv::CXTV_STOP_SW);
      EXPECT_EQ(s->write_index, s->status.get(spec::cxt_sts::read_index));
    } else if (subtype == admin_subtype::DSC_SYNC) {
      const util::View<spec::dsc_sync> sync(d.bytes());
      EXPECT_EQ(sync.get(spec::dsc_sync::flt), static_cast<unsigned>(spec::sync_filter::SYNC_CXT));
    }
  });
  const auto recovered = context->recover();
  host_.hook = nullptr;
  EXPECT_TRUE(recovered);
  using enum admin_subtype;
  EXPECT_THAT(seen, ElementsAre(DSC_CXT_UPD, DSC_SYNC, DSC_CXT_START_NM));
}

// W-11
TEST_F(DriverSetUpTest, NothingOfAContextChangesBetweenItsStopAndItsFinalState) {
  bring_up();
  auto context = make_context();
  inject("context=1,do=hang-soft-stop");
  std::optional<Structures> before;
  std::vector<std::uint32_t> hard;
  int updates = 0;
  watch_administration([&](admin_subtype subtype, const RawDescriptor& d) {
    const auto now = structures(1);
    ASSERT_TRUE(now);
    if (before) {
      EXPECT_TRUE(std::ranges::equal(now->control.bytes(), before->control.bytes()));
    }
    if (subtype == admin_subtype::DSC_CXT_STOP) {
      EXPECT_TRUE(now->valid());
      if (!before) before = now;
      hard.push_back(util::View<spec::dsc_cxt_stop>(d.bytes()).get(spec::dsc_cxt_stop::hs));
    } else if (subtype == admin_subtype::DSC_CXT_UPD) {
      EXPECT_FALSE(now->valid());
      EXPECT_EQ(now->state(), cxtv::CXTV_STOP_SW);
      ++updates;
    }
  });
  context.reset();
  EXPECT_THAT(hard, ElementsAre(0u, 1u));
  EXPECT_EQ(updates, 1);
}

// W-11: also, its memory is not reused as long as the function may access it.
TEST_F(DriverSetUpTest, AContextThatDoesNotStopStaysInTheTables) {
  const auto before = host_.allocated();
  bring_up();
  auto context = make_context();
  inject("context=1,do=hang-stop");
  const auto with_context = host_.allocated();
  context.reset();
  EXPECT_TRUE(structures(1)->valid());
  EXPECT_EQ(host_.allocated(), with_context);
  EXPECT_EQ(make_context()->number(), 2);
  group_.faults().clear();
  function_.reset();
  EXPECT_EQ(gsv(), fn_gsv::GSV_STOP);
  EXPECT_EQ(host_.allocated(), before);
}

// W-22
TEST_F(DriverSetUpTest, TheErrorLogIsInitializedInTheOrderOfTheDocument) {
  bring_up();
  std::vector<reg> order;
  for (const auto& access : host_.accesses) {
    if (!access.write || access.bar != kRegisters || access.at < 0x20000 || access.at > 0x20028) {
      continue;
    }
    order.push_back(static_cast<reg>(access.at));
    if (!access.is(reg::MMIO_ERR_CFG)) continue;
    EXPECT_EQ(as<spec::mmio_err_cfg>(access.value).get(spec::mmio_err_cfg::en),
              order.size() == 1 ? 0u : 1u);
  }
  EXPECT_THAT(order, ElementsAre(reg::MMIO_ERR_CFG, reg::MMIO_ERR_STS, reg::MMIO_ERR_CTL,
                                 reg::MMIO_ERR_WRT, reg::MMIO_ERR_RD, reg::MMIO_ERR_CFG));
}

/// A function without atomics and interrupts.
class DriverOfLittleTest : public DriverSetUpTest {
 protected:
  DriverOfLittleTest()
      : DriverSetUpTest({.capabilities = {.atomics = softhca::sdxi::AtomicSet::kMinimal,
                                          .interrupt_group = false}}) {}
};

// W-26
TEST_F(DriverOfLittleTest, OnlyOperationGroupsThatAreThereAreMadeAvailable) {
  bring_up();
  const auto context = make_context();
  const auto there = as<spec::mmio_cap1>(read(reg::MMIO_CAP1)).get(spec::mmio_cap1::opb_000_cap);
  EXPECT_NE(there, 0xffffffffu);
  const auto available =
      as<spec::mmio_ctl2>(read(reg::MMIO_CTL2)).get(spec::mmio_ctl2::opb_000_avl);
  EXPECT_EQ(available & ~there, 0u);
  for (const std::uint16_t number : {std::uint16_t{0}, context->number()}) {
    EXPECT_EQ(structures(number)->entry.get(spec::cxt_l1_ent::opb_000_enb) & ~there, 0u);
  }
}

// W-28
TEST_F(DriverOfLittleTest, AtomicsThatTheFunctionLacksAreRejected) {
  bring_up();
  const auto context = make_context();
  const auto memory = DmaBuffer::allocate(host_, 64);
  using enum spec::atomic_subtype;
  for (const auto operation : {DSC_ATM_SWAP, DSC_ATM_UADD, DSC_ATM_CMPSWAP}) {
    const auto done = context->atomic(operation, {memory->iova()}, 8, 1);
    EXPECT_TRUE(done && context->wait(*done));
  }
  for (const auto operation : {DSC_ATM_USUB, DSC_ATM_AND, DSC_ATM_UCLAMPD}) {
    EXPECT_FALSE(context->atomic(operation, {memory->iova()}, 8, 1));
  }
  EXPECT_EQ(context->state(), cxtv::CXTV_RUN);
}

/// Contexts 0 to 257: the example of SDXI 6.6.6.
class DriverOfManyContextsTest : public DriverSetUpTest {
 protected:
  DriverOfManyContextsTest() : DriverSetUpTest({.capabilities = {.max_cxt = 257}}) {}
};

// W-32
TEST_F(DriverOfManyContextsTest, AnUpdateOfLevel2NamesAllContextsOfTheEntry) {
  bring_up();
  using upd = spec::dsc_cxt_upd;
  std::vector<std::pair<unsigned, unsigned>> ranges;
  watch_administration([&](admin_subtype subtype, const RawDescriptor& d) {
    const util::View<upd> view(d.bytes());
    if (subtype != admin_subtype::DSC_CXT_UPD ||
        view.get(upd::tgt_pcd) != static_cast<std::uint32_t>(spec::tgt_pcd::UPD_L2)) {
      return;
    }
    ranges.emplace_back(view.get(upd::cxt_start), view.get(upd::cxt_end));
  });
  std::vector<std::unique_ptr<Context>> contexts;
  for (int i = 0; i < 257; ++i) contexts.push_back(make_context(1));
  EXPECT_EQ(contexts.back()->number(), 257);
  const auto has = [&](unsigned first, unsigned last) {
    return std::ranges::count(ranges, std::pair{first, last});
  };
  EXPECT_EQ(has(0, 127), 127);
  EXPECT_EQ(has(128, 255), 128);
  EXPECT_EQ(has(256, 257), 2);
  EXPECT_EQ(ranges.size(), 257u);
}

/// A PF with a VF.
class DriverOfAPfTest : public DriverSetUpTest {
 protected:
  DriverOfAPfTest() : DriverSetUpTest({.vfs = 1}) {}
  Device vf_{{}, group_, device_};
};

// W-29
TEST_F(DriverOfAPfTest, AckIsClearedBeforeTheNextMessage) {
  bring_up();
  // Takes the message, and leaves the acknowledgement set, as an earlier driver may have done.
  const auto leave_ack = [this] {
    const std::uint64_t one = 1;
    vf_.write_bar(kRegisters, static_cast<std::uint64_t>(reg::MMIO_MBR_ST),
                  std::as_bytes(std::span(&one, 1)));
    EXPECT_EQ(read(reg::MMIO_MBS_ST), 1u);
  };
  int sent = 0;
  host_.hook = [&](const Access& access) {
    if (!access.write || !access.is(reg::MMIO_MBS_CTL)) return;
    EXPECT_EQ(read(reg::MMIO_MBS_ST), 0u);
    ++sent;
  };
  for (int drivers = 0; drivers < 2; ++drivers) {
    Mailboxes mailboxes(*function_);
    for (int i = 0; i < 2; ++i) {
      ASSERT_TRUE(mailboxes.send(0, {}));
      leave_ack();
    }
  }
  EXPECT_EQ(sent, 4);
}

}  // namespace
}  // namespace softhca::driver::sdxi::test
