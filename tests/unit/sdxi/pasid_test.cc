// SDXI 3.1, Table 3-1: the PASID used for accesses to each structure. Every PASID has its own
// mapping of the same memory, so that the test sees a wrong PASID.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "sdxi/machine.h"
#include "util/inspected.h"

namespace softhca::sdxi::test {
namespace {

using akey_t = spec::akey_ent;
using spec::cxtv;

constexpr Pasid kFunction = 3, kAdmin = 5, kContext = 7, kData = 9;

class PasidTest : public ::testing::Test {
 protected:
  /// Sets fn_pasid_vl, CXT_L1_ENT.pv and AKEY_ENT.pv, or none of them.
  void activate(bool with_pasids) {
    for (const auto pasid : {kFunction, kAdmin, kContext, kData}) {
      auto& way = ways_[pasid];
      way.attach(m_.host(Machine::kBase), Machine::kBase);
      (void)pasids_.spaces[pasid].map_remote(Machine::kBase, Machine::kMemory, way,
                                             pcie::DmaAccess::kReadWrite);
    }
    m_.make_tables();
    m_.make_error_log();
    if (with_pasids) m_.write32(0, kFunction << 8 | 1u << 2);  // fn_pasid, fn_pasid_vl
    admin_ = make_context(0, cxtv::CXTV_RUN, with_pasids, kAdmin);
    c_ = make_context(4, cxtv::CXTV_STOP_SW, with_pasids, kContext);
    rkeys_ = m_.make_rkeys();  // AKey 2 makes the function reach itself
    m_.rkey(0).set(spec::rkey_ent::vl, 1);
    m_.rkey(0).set(spec::rkey_ent::req_sfunc, m_.device->sfunc());
    m_.rkey(0).set(spec::rkey_ent::pv, with_pasids);
    m_.rkey(0).set(spec::rkey_ent::pasid, kData);
    m_.akey(c_, 2).set(akey_t::vl, 1);
    m_.akey(c_, 2).set(akey_t::tgt_sfunc, m_.device->sfunc());
    m_.request(spec::fn_gsr::GSRV_ACTIVE);
    m_.run();
    from_ = m_.allocate(64), to_ = m_.allocate(64), back_ = m_.allocate(64);
    m_.fill(from_, 64, 1);
  }
  Machine::Context make_context(ContextNumber number, cxtv state, bool pv, Pasid pasid) {
    auto& c = m_.make_context(number, 64, state);
    m_.at<spec::cxt_l1_ent>(c.l1).set(spec::cxt_l1_ent::pv, pv);
    m_.at<spec::cxt_l1_ent>(c.l1).set(spec::cxt_l1_ent::cxt_pasid, pasid);
    m_.akey(c, 0).set(akey_t::pv, pv);
    m_.akey(c, 0).set(akey_t::pasid, kData);
    return c;
  }
  /// A start, copies, an atomic operation, an error, a stop: together they use every structure.
  void use_everything() {
    EXPECT_FALSE(m_.admin(start(4, 4)).er);
    EXPECT_FALSE(m_.execute(c_, copy(from_, to_, 64, 0, 2)).er);
    auto counted = atomic(spec::atomic_subtype::DSC_ATM_UADD, to_, 8, 1, 0, back_);
    block_ = m_.attach_completion(counted);
    m_.submit(c_, counted);
    EXPECT_FALSE(m_.admin(stop(4, 4)).er);
    EXPECT_FALSE(m_.admin(start(4, 4)).er);
    EXPECT_TRUE(m_.execute(c_, copy(0x1000, to_, 64)).er);
    EXPECT_EQ(m_.records(), 1u);
  }
  /// Expects accesses to [at, at + size) with `pasid` only.
  void expect_only(std::optional<Pasid> pasid, Iova at, std::size_t size, const char* what) {
    EXPECT_EQ(m_.trace.touched(at, size), !pasid.has_value()) << what << " without PASID";
    for (const auto& [number, way] : ways_) {
      EXPECT_EQ(way.touched(at, size), number == pasid) << what << " with PASID " << number;
    }
  }
  void expect_ways(bool with_pasids) {
    const auto by = [with_pasids](Pasid pasid) {
      return with_pasids ? std::optional(pasid) : std::nullopt;
    };
    expect_only(by(kFunction), m_.l2_entry(0), 8, "CXT_L2_ENT");
    expect_only(by(kFunction), c_.l1, 32, "CXT_L1_ENT");
    expect_only(by(kFunction), c_.ctl, 64, "CXT_CTL");
    expect_only(by(kFunction), c_.akeys, 16, "AKEY_ENT");
    expect_only(by(kFunction), rkeys_, 16, "RKEY_ENT");
    expect_only(by(kFunction), m_.record_at(0), 64, "ERRLOG_HD_ENT");
    expect_only(by(kAdmin), admin_.ring, 64, "the ring of context 0");
    expect_only(by(kAdmin), admin_.sts, 16, "CXT_STS of context 0");
    expect_only(by(kContext), c_.ring, 64, "the ring");
    expect_only(by(kContext), c_.sts, 16, "CXT_STS");
    expect_only(by(kContext), c_.write_index, 8, "Write_Index");
    expect_only(by(kContext), block_, 32, "CST_BLK");
    expect_only(by(kContext), back_, 8, "atomic return data");
    expect_only(by(kData), from_, 64, "source");
    expect_only(by(kData), to_, 64, "destination and operand");
  }

  Pasids pasids_;
  FunctionGroup group_;
  Machine m_{group_, {.pasid_spaces = &pasids_}, nullptr, Machine::Memory::kTraced};
  std::map<Pasid, Trace> ways_;
  Machine::Context admin_, c_;
  Iova rkeys_ = 0, from_ = 0, to_ = 0, back_ = 0, block_ = 0;
};

// D-023 D-068 D-183
TEST_F(PasidTest, EveryStructureIsAccessedWithItsPasid) {
  activate(true);
  use_everything();
  expect_ways(true);
}

// D-023 D-068 D-183: "iff pv", whatever the PASID field holds.
TEST_F(PasidTest, WithoutTheValidBitsNoPasidIsUsed) {
  activate(false);
  use_everything();
  expect_ways(false);
}

TEST_F(PasidTest, WithoutTheDatasPasidOnlyTheDataIsOutOfReach) {
  activate(true);
  EXPECT_FALSE(m_.admin(start(4, 4)).er);
  pasids_.spaces.erase(kData);
  EXPECT_TRUE(m_.execute(c_, copy(from_, to_, 64)).er);
  EXPECT_EQ(m_.record(0).get(spec::errlog_hd_ent::step), 10u);
  EXPECT_EQ(m_.state(admin_), cxtv::CXTV_RUN);
}

// Inspection translates AKeys as the function does.
TEST_F(PasidTest, InspectionReadsStructuresByTheSameWays) {
  activate(true);
  // The pages of fn_pasid are mapped; all others would need messages.
  auto& functions = pasids_.spaces[kFunction];
  EXPECT_TRUE(functions.unmap(Machine::kBase, Machine::kMemory));
  EXPECT_TRUE(functions.map(Machine::kBase, Machine::kMemory, m_.host(Machine::kBase),
                            pcie::DmaAccess::kReadWrite));
  for (auto& [pasid, way] : ways_) way.accesses.clear();
  const auto text = softhca::test::inspected(*m_.device, {.json = true});
  for (const auto& [pasid, way] : ways_) EXPECT_TRUE(way.accesses.empty()) << pasid;
  const auto tree = nlohmann::json::parse(text);
  const auto& context = tree["contexts"][1];
  EXPECT_EQ(context["akeys"].size(), 3u);
  for (const auto& part : {context["state"], context["ring"]["indices"]}) {
    EXPECT_EQ(part, "not mapped: the client gives it by messages only");
  }
}

// DeviceOptions::any_pasid: every structure that can name a PASID does.
TEST(AnyPasidTest, EveryPasidReachesTheMemoryOfRequestsWithoutOne) {
  for (const bool any : {true, false}) {
    FunctionGroup group;
    Machine m(group, {.any_pasid = any});
    m.activate();
    auto& c = m.make_context(4);
    m.at<spec::cxt_l1_ent>(c.l1).set(spec::cxt_l1_ent::pv, any);
    m.at<spec::cxt_l1_ent>(c.l1).set(spec::cxt_l1_ent::cxt_pasid, kContext);
    m.akey(c, 2).set(akey_t::vl, 1);
    m.akey(c, 2).set(akey_t::pv, 1);
    m.akey(c, 2).set(akey_t::pasid, kData);
    ASSERT_FALSE(m.admin(start(4, 4)).er);
    const auto from = m.allocate(64), to = m.allocate(64);
    m.fill(from, 64, 1);
    EXPECT_EQ(m.execute(c, copy(from, to, 64, 2, 2)).er, !any);
    EXPECT_EQ(m.equal(from, to, 64), any);
  }
}

}  // namespace
}  // namespace softhca::sdxi::test
