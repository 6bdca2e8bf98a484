// SDXI 5.3: what the parser of the descriptor ring refuses.
#include <gtest/gtest.h>

#include "sdxi/ring_machine.h"

namespace softhca::sdxi::test {
namespace {

using reg = spec::mmio_register;
using ent = spec::errlog_hd_ent;
using spec::cxtv;
using hdr = spec::dsc_header;

// D-131
TEST_F(RingTest, WriteIndexBelowReadIndexStopsTheContext) {
  m_.submit(c_, nop());
  m_.submit(c_, nop());
  m_.run();
  m_.store64(c_.write_index, 1);
  m_.doorbell(5, 3);
  m_.run();
  EXPECT_EQ(m_.state(c_), cxtv::CXTV_ERR_FN);
  EXPECT_EQ(m_.record(0).get(ent::step), 6u);
  EXPECT_EQ(m_.read_index(c_), 2u);
}

// D-132
TEST_F(RingTest, WriteIndexMoreThanTheRingAheadStopsTheContext) { expect_ring_error(65); }

TEST_F(RingTest, AnUnreadableWriteIndexStopsTheContextNotTheFunction) {
  m_.submit(c_, nop());
  m_.run();
  spec::set_address(m_.at<spec::cxt_ctl>(c_.ctl), spec::cxt_ctl::write_index_ptr, 0x1000);
  m_.admin(update_contexts(5, 5));
  m_.submit(c_, nop());
  m_.run();
  EXPECT_EQ(m_.state(c_), cxtv::CXTV_ERR_FN);
  EXPECT_EQ(m_.record(0).get(ent::step), 6u);
  EXPECT_EQ(m_.record(0).get(ent::sub_step), 1u);
  EXPECT_EQ(m_.gsv(), spec::fn_gsv::GSV_ACTIVE);
}

// D-133 D-138
TEST_F(RingTest, UnsupportedTypesAndSubtypesAreRefused) {
  using type = spec::dsc_type;
  const std::vector<std::pair<unsigned, unsigned>> wrong{
      {0x000, 0x01}, {0x001, 0x00}, {0x001, 0x05}, {0x001, 0xff}, {0x003, 0x00},
      {0x003, 0x04}, {0x003, 0x0f}, {0x004, 0x01}, {0x005, 0x00}, {0x01b, 0x00},
      {0x01c, 0x00}, {0x01f, 0x01}, {0x020, 0x00}, {0x7f7, 0x00}, {0x7ff, 0x00}};
  for (const auto& [t, s] : wrong) expect_parse_error(make(static_cast<type>(t), s), 5, 0x2400);
}

// D-133 D-157
TEST_F(RingTest, WrongFenceSequentialAndChainBitsAreRefused) {
  auto chain = nop();
  header(chain).set(hdr::ch, 1);
  expect_parse_error(chain, 5, 0x2100);
  auto sequential = nop();
  header(sequential).set(hdr::se, 1);
  expect_parse_error(sequential, 5, 0x2100);
  auto unfenced = start(5, 5);
  header(unfenced).set(hdr::fe, 0);
  expect_parse_error(unfenced, 0, 0x2100);
  auto admin = sync(spec::sync_filter::SYNC_FN);
  header(admin).set(hdr::se, 1);
  expect_parse_error(admin, 0, 0x2100);
}

// D-134 D-180
TEST_F(RingTest, AdminGrpOutsideContext0IsAnError) {
  for (unsigned subtype = 0; subtype <= 8; ++subtype) {
    auto d = make(spec::dsc_type::ADMIN_GRP, subtype);
    header(d).set(hdr::fe, 1);
    expect_parse_error(d, 5, 0x2400);
  }
}

// D-135
TEST_F(RingTest, Context0RunsOnlyAdministrativeGroups) {
  expect_parse_error(nop(), 0, 0x2400);
  expect_parse_error(copy(0, 0, 1), 0, 0x2400);
  expect_parse_error(interrupt(1), 0, 0x2400);
}

// D-136 D-027 D-137
TEST_F(RingTest, AnOptionalGroupNeedsCapAndAvlAndEnb) {
  constexpr std::uint32_t kAtomics = 8, kInterrupts = 0x10;  // bits of opb_000
  for (const auto opb_000 : {kAtomics, kInterrupts}) {
    for (unsigned bits = 0; bits < 8; ++bits) {
      const bool cap = bits & 1, avl = bits & 2, enb = bits & 4;
      FunctionGroup group;
      Machine m(group, {.capabilities = {.atomics = cap ? AtomicSet::kFull : AtomicSet::kNone,
                                         .interrupt_group = cap}});
      m.activate();
      m.set_field<spec::mmio_ctl2>(reg::MMIO_CTL2, spec::mmio_ctl2::opb_000_avl, avl ? opb_000 : 0);
      auto& c = m.make_context(1);
      m.at<spec::cxt_l1_ent>(c.l1).set(spec::cxt_l1_ent::opb_000_enb, enb ? opb_000 : 0);
      m.admin(start(1, 1));
      m.submit(c, nop());
      m.submit(c, opb_000 == kInterrupts
                      ? interrupt(1)
                      : atomic(spec::atomic_subtype::DSC_ATM_UADD, m.allocate(8), 8, 1));
      m.run();
      EXPECT_EQ(m.state(c), cap && avl && enb ? cxtv::CXTV_RUN : cxtv::CXTV_ERR_FN) << opb_000;
      EXPECT_EQ(m.read_index(c), cap && avl && enb ? 2u : 1u);
    }
  }
}

TEST_F(RingTest, TheMinimalAtomicSetHasThreeOperations) {
  FunctionGroup group;
  Machine m(group, {.capabilities = {.atomics = AtomicSet::kMinimal}});
  m.activate();
  for (unsigned subtype = 1; subtype <= 0xe; ++subtype) {
    if (subtype == 4) continue;
    auto& c = m.start_context(static_cast<ContextNumber>(subtype));
    m.submit(c, atomic(static_cast<spec::atomic_subtype>(subtype), m.allocate(8), 8, 1));
    m.run();
    const bool minimal = subtype == 1 || subtype == 2 || subtype == 0xe;
    EXPECT_EQ(m.state(c), minimal ? cxtv::CXTV_RUN : cxtv::CXTV_ERR_FN) << subtype;
  }
}

}  // namespace
}  // namespace softhca::sdxi::test
