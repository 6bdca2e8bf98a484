// SDXI 3.2.5, 3.3: AKeys, RKeys, cross-function accesses, PASIDs.
#include <gtest/gtest.h>

#include <set>

#include "sdxi/machine.h"

namespace softhca::sdxi::test {
namespace {

using reg = spec::mmio_register;
using akey_t = spec::akey_ent;
using rkey_t = spec::rkey_ent;
using ent = spec::errlog_hd_ent;
using spec::cxtv;

/// Makes AKey `index` of `c` refer to RKey `rkey` of function `sfunc`.
void point(Machine& m, const Machine::Context& c, std::uint16_t index, std::uint16_t sfunc,
           std::uint16_t rkey) {
  const auto entry = m.akey(c, index);
  std::fill(entry.bytes().begin(), entry.bytes().end(), std::byte{0});
  entry.set(akey_t::vl, 1);
  entry.set(akey_t::tgt_sfunc, sfunc);
  entry.set(akey_t::rkey, rkey);
}

class AKeyTest : public ::testing::Test {
 protected:
  AKeyTest() {
    m_.activate();
    c_ = m_.start_context(5);
    from_ = m_.allocate(64), to_ = m_.allocate(64);
  }
  void expect_refused(std::uint16_t akey0, std::uint16_t akey1, unsigned buffer,
                      unsigned err_class) {
    const auto records = m_.records();
    EXPECT_TRUE(m_.execute(c_, copy(from_, to_, 64, akey0, akey1)).er);
    ASSERT_EQ(m_.records(), records + 1);
    EXPECT_EQ(m_.record(records).get(ent::step), 11u);
    EXPECT_EQ(m_.record(records).get(ent::buf), buffer);
    EXPECT_EQ(m_.record(records).get(ent::bv), 1u);
    EXPECT_EQ(m_.record(records).get(ent::err_class), err_class);
    m_.set_state(c_, cxtv::CXTV_STOP_SW);
    ASSERT_FALSE(m_.admin(start(5, 5)).er);
  }
  FunctionGroup group_;
  Machine m_{group_};
  Machine::Context c_;
  Iova from_ = 0, to_ = 0;
};

// D-181 D-182
TEST_F(AKeyTest, AnyAKeyOfTheTableMayBeUsed) {
  m_.fill(from_, 64, 1);
  m_.akey(c_, 255).set(akey_t::vl, 1);
  EXPECT_FALSE(m_.execute(c_, copy(from_, to_, 64, 255, 0)).er);
  EXPECT_TRUE(m_.equal(from_, to_, 64));
}

// D-181
TEST_F(AKeyTest, IndexesBeyondTheTableAndInvalidEntriesAreRefused) {
  // The memory behind the table holds usable entries.
  const auto table = m_.allocate(8192, 4096);
  for (const unsigned index : {0, 256}) {
    m_.at<akey_t>(table + index * akey_t::kSize).set(akey_t::vl, 1);
  }
  spec::set_address(m_.at<spec::cxt_l1_ent>(c_.l1), spec::cxt_l1_ent::akey_ptr, table);
  m_.admin(update_contexts(5, 5, spec::tgt_pcd::UPD_L1));
  EXPECT_FALSE(m_.execute(c_, copy(from_, to_, 64)).er);
  expect_refused(256, 0, 0, 0x2320);
  expect_refused(0, 0xffff, 1, 0x2320);
  expect_refused(9, 0, 0, 0x2320);
}

TEST_F(AKeyTest, AnUnreadableTableIsRefused) {
  spec::set_address(m_.at<spec::cxt_l1_ent>(c_.l1), spec::cxt_l1_ent::akey_ptr, 0x1000);
  m_.admin(update_contexts(5, 5, spec::tgt_pcd::UPD_L1));
  EXPECT_TRUE(m_.execute(c_, copy(from_, to_, 64)).er);
  EXPECT_EQ(m_.record(0).get(ent::step), 11u);
  EXPECT_EQ(m_.record(0).get(ent::sub_step), 1u);
}

TEST_F(AKeyTest, ATableAboveTheFunctionsLimitIsRefused) {
  m_.set_field<spec::mmio_ctl2>(reg::MMIO_CTL2, spec::mmio_ctl2::max_akey_sz, 0);
  m_.at<spec::cxt_l1_ent>(c_.l1).set(spec::cxt_l1_ent::akey_sz, 1);
  m_.admin(update_contexts(5, 5, spec::tgt_pcd::UPD_L1));
  expect_refused(0, 0, 0, 0x2320);
}

TEST_F(AKeyTest, ReservedFieldsOfARemoteEntryAreRefused) {
  point(m_, c_, 7, 99, 0);
  m_.akey(c_, 7).set(akey_t::pv, 1);
  expect_refused(7, 0, 0, 0x2200);
}

// D-183
TEST_F(AKeyTest, APasidIsRefusedWithoutPasidSupport) {
  m_.akey(c_, 3).set(akey_t::vl, 1);
  m_.akey(c_, 3).set(akey_t::pv, 1);
  expect_refused(3, 0, 0, 0x2360);
}

class RKeyTest : public ::testing::Test {
 protected:
  static constexpr std::uint16_t kRKey = 40;

  RKeyTest() {
    a_.activate(), b_.activate();
    c_ = a_.start_context(5);
    b_.make_rkeys();
    b_.rkey(kRKey).set(rkey_t::vl, 1);
    b_.rkey(kRKey).set(rkey_t::req_sfunc, a_.device->sfunc());
    point(a_, c_, 2, b_.device->sfunc(), kRKey);
    here_ = a_.allocate(4096), there_ = b_.allocate(4096);
    a_.fill(here_, 4096, 1);
    b_.fill(there_, 4096, 2);
  }
  bool reaches() { return !a_.execute(c_, copy(here_, there_, 4096, 0, 2)).er; }
  void recover() {
    a_.set_state(c_, cxtv::CXTV_STOP_SW);
    ASSERT_FALSE(a_.admin(start(5, 5)).er);
  }
  /// SDXI 3.3.4: the requester logs a data buffer error and stops the context. The target logs
  /// nothing.
  void expect_aborted(std::uint64_t target_records = 0) {
    const auto requester = a_.records(), target = b_.records();
    EXPECT_FALSE(reaches());
    EXPECT_EQ(a_.state(c_), cxtv::CXTV_ERR_FN);
    ASSERT_EQ(a_.records(), requester + 1);
    EXPECT_EQ(a_.record(requester).get(ent::step), 10u);
    EXPECT_EQ(a_.record(requester).get(ent::buf), 1u);
    EXPECT_EQ(b_.records(), target + target_records);
    recover();
  }
  FunctionGroup group_;
  Machine a_{group_}, b_{group_};
  Machine::Context c_;
  Iova here_ = 0, there_ = 0;
};

// D-187 D-036
TEST_F(RKeyTest, ACopyReachesTheMemoryOfAnotherFunctionBothWays) {
  ASSERT_TRUE(reaches());
  EXPECT_EQ(0, std::memcmp(a_.host(here_), b_.host(there_), 4096));
  b_.fill(there_, 4096, 3);
  EXPECT_FALSE(a_.execute(c_, copy(there_, here_, 4096, 2, 0)).er);
  EXPECT_EQ(0, std::memcmp(a_.host(here_), b_.host(there_), 4096));
}

TEST_F(RKeyTest, BothBuffersMayBeRemoteAndAtomicsToo) {
  const auto second = b_.allocate(4096);
  EXPECT_FALSE(a_.execute(c_, copy(there_, second, 4096, 2, 2)).er);
  EXPECT_TRUE(b_.equal(there_, second, 4096));
  auto d = atomic(spec::atomic_subtype::DSC_ATM_UADD, second, 8, 5);
  edit<spec::dsc_atm>(d).set(spec::dsc_atm::akey0, 2);
  const auto before = b_.load64(second);
  EXPECT_FALSE(a_.execute(c_, d).er);
  EXPECT_EQ(b_.load64(second), before + 5);
}

// D-187 D-190 D-191 D-036
TEST_F(RKeyTest, EachViolatedCheckAbortsTheAccess) {
  b_.rkey(kRKey).set(rkey_t::vl, 0);
  expect_aborted();
  b_.rkey(kRKey).set(rkey_t::vl, 1);
  b_.rkey(kRKey).set(rkey_t::req_sfunc, 77);
  expect_aborted();
  b_.rkey(kRKey).set(rkey_t::req_sfunc, a_.device->sfunc());
  b_.set_field<spec::mmio_rkey>(reg::MMIO_RKEY, spec::mmio_rkey::en, 0);
  expect_aborted();
  b_.set_field<spec::mmio_rkey>(reg::MMIO_RKEY, spec::mmio_rkey::en, 1);
  b_.set_field<spec::mmio_rkey>(reg::MMIO_RKEY, spec::mmio_rkey::sz, 9);  // above max_rkey_sz
  expect_aborted();
  b_.set_field<spec::mmio_rkey>(reg::MMIO_RKEY, spec::mmio_rkey::sz, 0);
  point(a_, c_, 2, b_.device->sfunc(), 256);
  expect_aborted();
  point(a_, c_, 2, 999, kRKey);
  expect_aborted();
  point(a_, c_, 2, b_.device->sfunc(), kRKey);
  EXPECT_TRUE(reaches());
}

// D-187: step 1.
TEST_F(RKeyTest, AFunctionOfAnotherGroupIsNotReached) {
  FunctionGroup elsewhere;
  Machine far(elsewhere), farther(elsewhere), farthest(elsewhere);
  point(a_, c_, 2, farthest.device->sfunc(), kRKey);
  expect_aborted();
}

// Functions of two groups in one loop.
TEST(GroupTest, FunctionsOfDifferentNamesDoNotReachEachOther) {
  FunctionGroup group;
  Machine a(group, {.group = "left", .vfs = 1}), near(group, {.group = "left"}),
      far(group, {.group = "right"});
  Machine vf(group, {}, &a);
  std::set<std::uint16_t> sfuncs;
  for (auto* m : {&a, &near, &far, &vf}) {
    m->activate();
    m->make_rkeys();
    sfuncs.insert(m->device->sfunc());
  }
  EXPECT_EQ(sfuncs.size(), 4u);
  const auto reaches = [](Machine& from, Machine& to) {
    to.rkey(0).set(rkey_t::vl, 1);
    to.rkey(0).set(rkey_t::req_sfunc, from.device->sfunc());
    auto& c = from.start_context(1);
    point(from, c, 2, to.device->sfunc(), 0);
    return !from.execute(c, copy(from.allocate(64), to.allocate(64), 64, 0, 2)).er;
  };
  EXPECT_TRUE(reaches(a, near));
  EXPECT_TRUE(reaches(near, a));
  EXPECT_TRUE(reaches(near, vf)) << "a VF is in the group of its PF";
  EXPECT_TRUE(reaches(vf, near));
  EXPECT_FALSE(reaches(a, far));
  EXPECT_FALSE(reaches(far, near));
  EXPECT_FALSE(reaches(far, vf));
  a.write(reg::MMIO_GRP_ENUM, 2);
  a.run();
  EXPECT_EQ(near.read(reg::MMIO_GRP_ENUM), 2u);
  EXPECT_EQ(far.read(reg::MMIO_GRP_ENUM), 0u);
}

// D-186
TEST_F(RKeyTest, WithoutRKeyCapabilityThereIsNoCrossFunctionAccess) {
  FunctionGroup group;
  Machine local(group, {.capabilities = {.rkey_cap = false}}), target(group);
  local.activate();
  auto& c = local.start_context(1);
  point(local, c, 2, target.device->sfunc(), 0);
  EXPECT_TRUE(local.execute(c, copy(local.allocate(8), 0x1000, 8, 0, 2)).er);
  EXPECT_EQ(local.record(0).get(ent::step), 10u);
}

// D-187: check 3. The sfunc of a target without the capability is 0, which AKeys cannot name.
TEST_F(RKeyTest, ATargetWithoutRKeyCapabilityIsReachedByNoSfunc) {
  Machine local(group_, {.capabilities = {.rkey_cap = false}});
  local.activate();
  local.make_rkeys();
  local.rkey(kRKey).set(rkey_t::vl, 1);
  local.rkey(kRKey).set(rkey_t::req_sfunc, a_.device->sfunc());
  const auto target = local.allocate(4096);
  local.fill(target, 4096, 5);
  EXPECT_EQ(local.device->sfunc(), 0u);
  for (std::uint16_t sfunc = 1; sfunc < 8; ++sfunc) {
    if (sfunc == a_.device->sfunc() || sfunc == b_.device->sfunc()) continue;
    point(a_, c_, 2, sfunc, kRKey);
    EXPECT_TRUE(a_.execute(c_, copy(target, here_, 4096, 2, 0)).er) << sfunc;
    recover();
  }
}

// D-062 D-219
TEST_F(RKeyTest, ATargetThatIsNotActiveAbortsTheAccess) {
  b_.request(spec::fn_gsr::GSRV_STOP_SF);
  b_.run();
  expect_aborted();
  b_.request(spec::fn_gsr::GSRV_ACTIVE);  // GSV_INIT
  expect_aborted();
  b_.request(spec::fn_gsr::GSRV_RESET);  // GSV_ERROR
  ASSERT_EQ(b_.gsv(), spec::fn_gsv::GSV_ERROR);
  expect_aborted(0);
}

// D-192
TEST_F(RKeyTest, AFaultyTableOfTheTargetIsLoggedOnBothSidesAndTheTargetGoesOn) {
  b_.set_field<spec::mmio_rkey>(reg::MMIO_RKEY, spec::mmio_rkey::ptr, 0x1);
  expect_aborted(1);
  EXPECT_EQ(b_.record(0).get(ent::step), 12u);
  EXPECT_EQ(b_.record(0).get(ent::re), 0u);
  EXPECT_EQ(b_.record(0).get(ent::cv), 0u);
  EXPECT_EQ(b_.gsv(), spec::fn_gsv::GSV_ACTIVE);
}

// D-192
TEST_F(RKeyTest, AnRKeyWithAPasidTheTargetDoesNotSupportIsItsFault) {
  b_.rkey(kRKey).set(rkey_t::pv, 1);
  expect_aborted(1);
  EXPECT_EQ(b_.record(0).get(ent::err_class), 0x2360u);
}

// D-189
TEST(RKeyPasidTest, TheTargetAppliesThePasidOfTheRKey) {
  Pasids pasids;
  FunctionGroup group;
  Machine a(group), b(group, {.pasid_spaces = &pasids});
  a.activate(), b.activate();
  auto& c = a.start_context(1);
  b.make_rkeys();
  b.rkey(0).set(rkey_t::vl, 1);
  b.rkey(0).set(rkey_t::req_sfunc, a.device->sfunc());
  b.rkey(0).set(rkey_t::pv, 1);
  b.rkey(0).set(rkey_t::pasid, 0xabcde);
  point(a, c, 2, b.device->sfunc(), 0);
  std::array<std::byte, 4096> page{};
  (void)pasids.spaces[0xabcde].map(0x8000, 4096, page.data(), pcie::DmaAccess::kReadWrite);
  const auto from = a.allocate(64);
  a.fill(from, 64, 1);
  EXPECT_FALSE(a.execute(c, copy(from, 0x8000, 64, 0, 2)).er);
  EXPECT_EQ(0, std::memcmp(a.host(from), page.data(), 64));
}

// D-190: for a fault in the target's memory, the requester logs the record.
TEST_F(RKeyTest, AFaultInTheTargetsMemoryIsLoggedByTheRequester) {
  there_ = 0x1000;
  expect_aborted();
}

// D-188
TEST_F(RKeyTest, ARemoteInterruptUsesTheTargetsVector) {
  EXPECT_TRUE(a_.execute(c_, interrupt(2)).er);  // iv is 0 at the target
  EXPECT_EQ(a_.record(0).get(ent::step), 10u);
  recover();
  b_.rkey(kRKey).set(rkey_t::iv, 1);
  b_.rkey(kRKey).set(rkey_t::intr_num, 21);
  EXPECT_FALSE(a_.execute(c_, interrupt(2)).er);
  EXPECT_EQ(b_.interrupts(21), 1u);
  EXPECT_EQ(a_.interrupts(21), 0u);
  b_.rkey(kRKey).set(rkey_t::intr_num, 2000);
  EXPECT_TRUE(a_.execute(c_, interrupt(2)).er);
  EXPECT_EQ(b_.record(0).get(ent::step), 12u);
}

// D-182: naming its own sfunc does not bypass the RKey.
TEST_F(RKeyTest, TheOwnSfuncGoesThroughTheRKeyTable) {
  point(a_, c_, 3, a_.device->sfunc(), 0);
  EXPECT_TRUE(a_.execute(c_, copy(here_, here_ + 2048, 64, 3, 0)).er);
  recover();
  a_.make_rkeys();
  a_.rkey(0).set(rkey_t::vl, 1);
  a_.rkey(0).set(rkey_t::req_sfunc, a_.device->sfunc());
  EXPECT_FALSE(a_.execute(c_, copy(here_, here_ + 2048, 64, 3, 0)).er);
}

// D-227
TEST_F(RKeyTest, AResetOfTheTargetEndsIncomingAccesses) {
  const auto size = 16u << 20;
  const auto from = a_.allocate(size), to = b_.allocate(size);
  a_.fill(from, size, 1);
  a_.submit(c_, copy(from, to, size, 0, 2));
  a_.step();
  b_.device->reset();
  const std::vector<std::byte> before(b_.host(to), b_.host(to) + size);
  a_.run();
  EXPECT_EQ(0, std::memcmp(before.data(), b_.host(to), size));
  EXPECT_EQ(a_.state(c_), cxtv::CXTV_ERR_FN);
  EXPECT_EQ(a_.record(0).get(ent::step), 10u);
}

TEST_F(RKeyTest, ATargetThatLeavesTheGroupIsNotReached) {
  auto third = std::make_unique<Machine>(group_);
  point(a_, c_, 2, third->device->sfunc(), kRKey);
  third.reset();
  expect_aborted();
}

}  // namespace
}  // namespace softhca::sdxi::test
