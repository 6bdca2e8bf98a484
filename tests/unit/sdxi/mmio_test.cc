// SDXI 9: MMIO registers.
#include <gtest/gtest.h>

#include "sdxi/machine.h"

namespace softhca::sdxi::test {
namespace {

using reg = spec::mmio_register;

class MmioTest : public ::testing::Test {
 protected:
  FunctionGroup group_;
  Machine m_{group_};
};

// D-016 D-034 The document's numbers are repeated here, so that the test does not compare a table
// with itself (SDXI 9.1 to 9.7).
TEST_F(MmioTest, RegistersAreAtTheirOffsets) {
  struct Register {
    std::uint64_t at;
    reg name;
    std::uint64_t writable;  ///< writable bits in GSV_STOP
  };
  constexpr std::array kRegisters{
      Register{0x0000, reg::MMIO_CTL0, 0xffffffff'0fffff14},  // all but fn_gsr
      Register{0x0008, reg::MMIO_GRP_ENUM, 0x3},
      Register{0x0010, reg::MMIO_CTL2, 0xffffffff'fffff00f},
      Register{0x0100, reg::MMIO_STS0, 0},
      Register{0x0200, reg::MMIO_CAP0, 0},
      Register{0x0208, reg::MMIO_CAP1, 0},
      Register{0x0210, reg::MMIO_VERSION, 0},
      Register{0x10000, reg::MMIO_CXT_L2, 0xffffffff'fffff000},
      Register{0x10100, reg::MMIO_RKEY, 0xffffffff'fffff01f},
      Register{0x20000, reg::MMIO_ERR_CTL, 0x1},
      Register{0x20008, reg::MMIO_ERR_STS, 0},
      Register{0x20010, reg::MMIO_ERR_CFG, 0xffffffff'fffff03f},
      Register{0x20020, reg::MMIO_ERR_WRT, ~std::uint64_t{0}},
      Register{0x20028, reg::MMIO_ERR_RD, ~std::uint64_t{0}}};
  for (const auto& [at, name, writable] : kRegisters) {
    EXPECT_EQ(at, static_cast<std::uint64_t>(name));
    if (name == reg::MMIO_ERR_WRT) m_.write(reg::MMIO_ERR_CFG, 0);  // turns logging off
    const auto before = m_.read(at);
    m_.write(at, before ^ ~std::uint64_t{3} ^ (writable & 3));
    EXPECT_EQ(m_.read(at) ^ before, writable) << std::hex << at;
  }
  EXPECT_EQ(m_.read(0x0210), 0x10000u);  // MMIO_VERSION: 1.0
  EXPECT_EQ(m_.field<spec::mmio_version>(reg::MMIO_VERSION, spec::mmio_version::major), 1u);
  EXPECT_EQ(m_.field<spec::mmio_version>(reg::MMIO_VERSION, spec::mmio_version::minor), 0u);
  m_.write(0x10000, 0x12345000);
  EXPECT_EQ(m_.read(reg::MMIO_CXT_L2), 0x12345000u);
  EXPECT_EQ(m_.read(0x50000), 0u);
}

// D-017
TEST_F(MmioTest, AlignedAccessesOfEverySizeAreConsistent) {
  m_.write(reg::MMIO_CTL2, 0x11112222'33334005);
  std::array<std::byte, 8> parts{};
  for (std::size_t size : {1u, 2u, 4u}) {
    for (std::size_t at = 0; at < 8; at += size) {
      m_.device->read_bar(0, 0x10 + at, std::span(parts).subspan(at, size));
    }
    EXPECT_EQ(util::load_le64(parts.data()), m_.read(reg::MMIO_CTL2));
  }
  const std::uint16_t half = 0xabcd;
  m_.device->write_bar(0, 0x16, std::as_bytes(std::span(&half, 1)));
  EXPECT_EQ(m_.read(reg::MMIO_CTL2), 0xabcd2222'33334005u);
  const std::byte one{0x77};
  m_.device->write_bar(0, 0x14, std::span(&one, 1));
  EXPECT_EQ(m_.read(reg::MMIO_CTL2), 0xabcd2277'33334005u);
}

TEST_F(MmioTest, ReservedBitsReadAsZero) {
  m_.write(reg::MMIO_CTL2, ~std::uint64_t{0});
  EXPECT_EQ(m_.read(reg::MMIO_CTL2), 0xffffffff'fffff00fu);
  m_.write(reg::MMIO_GRP_ENUM, ~std::uint64_t{0});
  EXPECT_EQ(m_.read(reg::MMIO_GRP_ENUM), 3u);
  m_.write(reg::MMIO_ERR_CTL, ~std::uint64_t{0});
  EXPECT_EQ(m_.read(reg::MMIO_ERR_CTL), 1u);
}

// D-018
TEST_F(MmioTest, OnlyAligned64BitWritesAreDoorbells) {
  m_.activate();
  auto& c = m_.start_context(3);
  m_.push(c, nop());
  const std::uint32_t narrow = 1;
  const std::uint64_t wide = 1;
  m_.device->write_bar(2, 3 * 4096, std::as_bytes(std::span(&narrow, 1)));
  m_.device->write_bar(2, 3 * 4096 + 8, std::as_bytes(std::span(&wide, 1)));
  m_.device->write_bar(2, 3 * 4096 + 4, std::as_bytes(std::span(&wide, 1)));
  m_.run();
  EXPECT_EQ(m_.read_index(c), 0u);
  m_.doorbell(3, 1);
  m_.run();
  EXPECT_EQ(m_.read_index(c), 1u);
}

// D-019
TEST_F(MmioTest, ADoorbellReadReturnsSomething) {
  std::array<std::byte, 8> bytes;
  m_.device->read_bar(2, 4096, bytes);
  EXPECT_EQ(util::load_le64(bytes.data()), 0u);
}

// D-020
TEST_F(MmioTest, DisableModifyEnableYieldsTheNewValues) {
  m_.make_error_log();
  m_.write32(0x20010, 0);
  EXPECT_EQ(m_.field<spec::mmio_err_cfg>(reg::MMIO_ERR_CFG, spec::mmio_err_cfg::en), 0u);
  m_.write32(0x20014, 0x11);
  m_.write32(0x20010, 0x3007);
  EXPECT_EQ(m_.read(reg::MMIO_ERR_CFG), 0x11'00003007u);
  m_.write32(0x10100, 0);
  m_.write32(0x10104, 0x11);
  m_.write32(0x10100, 0x2003);
  EXPECT_EQ(m_.read(reg::MMIO_RKEY), 0x11'00002003u);
}

// D-021 D-040
TEST_F(MmioTest, TwoHalvesOfErrRdGiveTheIndex) {
  m_.write32(0x20028, 0x89abcdef);
  m_.write32(0x2002c, 0x01234567);
  EXPECT_EQ(m_.read(reg::MMIO_ERR_RD), 0x01234567'89abcdefu);
}

// D-022
TEST_F(MmioTest, FnGsrIsZeroAfterResetAndReadsBack) {
  EXPECT_EQ(m_.read(reg::MMIO_CTL0), 0u);
  m_.request(spec::fn_gsr::GSRV_STOP_HD);
  EXPECT_EQ(m_.field<spec::mmio_ctl0>(reg::MMIO_CTL0, spec::mmio_ctl0::fn_gsr), 2u);
}

// D-025
TEST_F(MmioTest, FnGrpIdIsScratchOnAPfAndACopyOnItsVf) {
  FunctionGroup group;
  Machine pf(group, {.vfs = 1}), other(group);
  Machine vf(group, {}, &pf);
  pf.write32(4, 0xcafe);
  EXPECT_EQ(pf.read(reg::MMIO_CTL0) >> 32, 0xcafeu);
  EXPECT_EQ(vf.read(reg::MMIO_CTL0) >> 32, 0xcafeu);
  EXPECT_EQ(other.read(reg::MMIO_CTL0) >> 32, 0u);
  vf.write32(4, 0xbeef);
  EXPECT_EQ(vf.read(reg::MMIO_CTL0) >> 32, 0xcafeu);
  EXPECT_EQ(pf.read(reg::MMIO_CTL0) >> 32, 0xcafeu);
}

// Writing another byte of MMIO_CTL0 is no request.
TEST_F(MmioTest, WritingFnGrpIdDoesNotRequestAState) {
  m_.activate();
  m_.write32(4, 7);
  EXPECT_EQ(m_.gsv(), spec::fn_gsv::GSV_ACTIVE);
}

// D-026 D-224
TEST_F(MmioTest, Ctl2ResetsToTheCapabilitiesAndNoOptionalGroup) {
  using ctl2 = spec::mmio_ctl2;
  using cap1 = spec::mmio_cap1;
  const auto same = [this](auto limit, auto cap) {
    EXPECT_EQ(m_.field<ctl2>(reg::MMIO_CTL2, limit), m_.field<cap1>(reg::MMIO_CAP1, cap));
  };
  same(ctl2::max_buffer, cap1::max_buffer);
  same(ctl2::max_akey_sz, cap1::max_akey_sz);
  same(ctl2::max_cxt, cap1::max_cxt);
  EXPECT_EQ(m_.field<ctl2>(reg::MMIO_CTL2, ctl2::opb_000_avl), 0u);
}

// D-029
TEST_F(MmioTest, SfuncIsUniqueInTheGroupAndNotZero) {
  FunctionGroup group;
  Machine a(group), b(group);
  Machine local(group, {.capabilities = {.rkey_cap = false}});
  EXPECT_NE(a.device->sfunc(), 0u);
  EXPECT_NE(b.device->sfunc(), 0u);
  EXPECT_NE(a.device->sfunc(), b.device->sfunc());
  EXPECT_EQ(a.field<spec::mmio_cap0>(reg::MMIO_CAP0, spec::mmio_cap0::sfunc), a.device->sfunc());
  EXPECT_EQ(local.device->sfunc(), 0u);
}

// D-032
TEST_F(MmioTest, DoorbellNRespondsAtNTimesTheStride) {
  FunctionGroup group;
  Machine m(group, {.capabilities = {.db_stride = 2}});
  m.activate();
  auto& c = m.start_context(2);
  m.push(c, nop());
  const std::uint64_t value = 1;
  m.device->write_bar(2, 2 * 4096, std::as_bytes(std::span(&value, 1)));
  m.run();
  EXPECT_EQ(m.read_index(c), 0u);
  m.device->write_bar(2, 2 * 4 * 4096, std::as_bytes(std::span(&value, 1)));
  m.run();
  EXPECT_EQ(m.read_index(c), 1u);
}

// D-033: every option at both ends of its range, against the values of Tables 9-6 and 9-7. Fields
// not named there read as 0.
TEST_F(MmioTest, CapabilitiesAreInTheirLegalRanges) {
  using enum spec::cs_cap;
  struct Case {
    DeviceOptions options;
    std::uint64_t cap0, cap1;
  };
  const std::array cases{
      Case{{.capabilities = {.max_cxt = 0,
                             .db_stride = 0,
                             .max_ds_ring_sz = 0,
                             .max_buffer = 0,
                             .max_akey_sz = 0,
                             .max_rkey_sz = 0,
                             .max_errlog_sz = 0,
                             .cs_cap = CS_ATOMIC,
                             .rkey_cap = false,
                             .atomics = AtomicSet::kNone,
                             .interrupt_group = false}},
           0,
           1u << 6},
      Case{{.capabilities = {.max_cxt = 0xffff,
                             .db_stride = 7,
                             .max_ds_ring_sz = 22,
                             .max_buffer = 11,
                             .max_akey_sz = 8,
                             .max_rkey_sz = 8,
                             .max_errlog_sz = 9,
                             .cs_cap = CS_NON_ATOMIC,
                             .rkey_cap = true,
                             .atomics = AtomicSet::kFull,
                             .interrupt_group = true}},
           8ull << 32 | 22u << 24 | 7u << 20 | 3u << 17 | 1,
           0x18ull << 32 | 0xffffull << 16 | 8u << 12 | 9u << 8 | 1u << 6 | 1u << 4 | 11},
      Case{{.capabilities = {.cs_cap = CS_BOTH, .rkey_cap = false, .atomics = AtomicSet::kMinimal}},
           8ull << 32 | 10u << 24 | 2u << 17,
           0x30ull << 32 | 127u << 16 | 8u << 12 | 9u << 8 | 1u << 6 | 11}};
  for (const auto& [options, cap0, cap1] : cases) {
    FunctionGroup group;
    const Machine m(group, options);
    EXPECT_EQ(m.read(reg::MMIO_CAP0), cap0) << std::hex << m.read(reg::MMIO_CAP0);
    EXPECT_EQ(m.read(reg::MMIO_CAP1), cap1) << std::hex << m.read(reg::MMIO_CAP1);
  }
}

// D-035
TEST_F(MmioTest, CxtL2ChangesOnlyWhileTheFunctionIsStopped) {
  m_.activate();
  const auto before = m_.read(reg::MMIO_CXT_L2);
  m_.write(reg::MMIO_CXT_L2, 0x1000);
  EXPECT_EQ(m_.read(reg::MMIO_CXT_L2), before);
  m_.request(spec::fn_gsr::GSRV_STOP_SF);
  m_.run();
  m_.make_tables();
  EXPECT_NE(m_.read(reg::MMIO_CXT_L2), before);
  m_.make_context(0, 16, spec::cxtv::CXTV_RUN);
  m_.request(spec::fn_gsr::GSRV_ACTIVE);
  m_.run();
  EXPECT_TRUE(m_.admin(sync(spec::sync_filter::SYNC_FN)).done);
}

// D-170
TEST_F(MmioTest, TheFullAtomicSetExcludesTheMinimalOne) {
  const auto groups = [](AtomicSet set) {
    FunctionGroup group;
    Machine m(group, {.capabilities = {.atomics = set}});
    return m.field<spec::mmio_cap1>(reg::MMIO_CAP1, spec::mmio_cap1::opb_000_cap) & 0x28;
  };
  EXPECT_EQ(groups(AtomicSet::kFull), 0x08u);
  EXPECT_EQ(groups(AtomicSet::kMinimal), 0x20u);
  EXPECT_EQ(groups(AtomicSet::kNone), 0u);
}

// D-193 D-194 D-195 D-197
TEST_F(MmioTest, ProbePropagatesToAllPfsAndIsSeenByVfs) {
  FunctionGroup group, elsewhere;
  Machine a(group, {.vfs = 1}), b(group), outside(elsewhere);
  Machine vf(group, {}, &a), vf_of_b(group, {}, &b);
  b.write(reg::MMIO_GRP_ENUM, 3);
  EXPECT_EQ(b.read(reg::MMIO_GRP_ENUM), 3u);  // busy until it has reached the other PFs
  EXPECT_EQ(vf_of_b.read(reg::MMIO_GRP_ENUM), 3u) << "as its PF";
  EXPECT_EQ(vf.read(reg::MMIO_GRP_ENUM), 0u);
  b.run();
  EXPECT_EQ(b.read(reg::MMIO_GRP_ENUM), 2u);
  EXPECT_EQ(a.read(reg::MMIO_GRP_ENUM), 2u);
  EXPECT_EQ(vf.read(reg::MMIO_GRP_ENUM), 2u);
  EXPECT_EQ(vf_of_b.read(reg::MMIO_GRP_ENUM), 2u);
  EXPECT_EQ(outside.read(reg::MMIO_GRP_ENUM), 0u);
  vf.write(reg::MMIO_GRP_ENUM, 1);  // sets neither probe nor busy
  EXPECT_EQ(vf.read(reg::MMIO_GRP_ENUM), 2u);
  EXPECT_EQ(a.read(reg::MMIO_GRP_ENUM), 2u);
  vf.run();
  EXPECT_EQ(vf.read(reg::MMIO_GRP_ENUM), 2u);
  EXPECT_EQ(b.read(reg::MMIO_GRP_ENUM), 2u);
  b.write(reg::MMIO_GRP_ENUM, 3);
  vf_of_b.write(reg::MMIO_GRP_ENUM, 0);
  EXPECT_EQ(vf_of_b.read(reg::MMIO_GRP_ENUM), 3u) << "the PF's busy is not ended by its VF";
}

// D-008 D-217
TEST_F(MmioTest, MailboxRegistersAreReservedWithoutSrIov) {
  for (std::uint64_t at : {0x30000u, 0x31000u, 0x33000u, 0x60000u, 0x70000u}) {
    m_.write(at, ~std::uint64_t{0});
    EXPECT_EQ(m_.read(at), 0u);
  }
}

class MailboxTest : public ::testing::Test {
 protected:
  static constexpr std::uint64_t message(std::uint64_t vf) { return 1 | vf << 16; }
  FunctionGroup group_;
  Machine pf_{group_, {.vfs = 3}};
  Machine vf0_{group_, {}, &pf_};
  Machine vf1_{group_, {}, &pf_};
};

// D-016: the document's numbers (SDXI 9.4 to 9.6). Each VF has a bit in both arrays and 16 bytes in
// both mailboxes.
TEST_F(MailboxTest, MailboxRegistersAreAtTheirOffsets) {
  pf_.write(0x30000, ~std::uint64_t{0});
  EXPECT_EQ(pf_.read(0x30000), 3u);
  pf_.write(0x60010, 0x11);
  EXPECT_EQ(vf1_.read(0x70000), 0x11u);
  pf_.write(0x30010, 1 | 1 << 16);
  EXPECT_EQ(vf1_.read(0x33000), 1u);
  vf1_.write(0x33000, 1);
  EXPECT_EQ(pf_.read(0x31000), 2u);
  vf1_.write(0x60008, 0x22);
  EXPECT_EQ(pf_.read(0x70018), 0x22u);
  vf1_.write(0x30010, 1);
  EXPECT_EQ(pf_.read(0x33000), 2u);
  pf_.write(0x33000, 2);
  EXPECT_EQ(vf1_.read(0x31000), 1u);
  for (const std::uint64_t reserved : {0x30008u, 0x30010u, 0x30018u, 0x35000u, 0x50000u}) {
    EXPECT_EQ(pf_.read(reserved), 0u) << std::hex << reserved;
  }
}

// D-212
TEST_F(MailboxTest, DataWrittenOnOneSideReadsOnTheOther) {
  pf_.write(0x60010, 0x1122334455667788);
  EXPECT_EQ(vf1_.read(0x70000), 0x1122334455667788u);
  EXPECT_EQ(vf0_.read(0x70000), 0u);
  vf1_.write(0x60008, 42);
  EXPECT_EQ(pf_.read(0x70018), 42u);
  vf1_.write(0x70000, 0);  // the receive side is read-only
  EXPECT_EQ(vf1_.read(0x70000), 0x1122334455667788u);
}

// D-213 D-214 D-215
TEST_F(MailboxTest, AMessageSetsRcvAndTakingItSetsAck) {
  pf_.write(reg::MMIO_MBS_CTL, message(1));
  EXPECT_EQ(vf1_.read(reg::MMIO_MBR_ST), 1u);
  EXPECT_EQ(vf0_.read(reg::MMIO_MBR_ST), 0u);
  EXPECT_EQ(pf_.read(reg::MMIO_MBS_ST), 0u);
  vf1_.write(reg::MMIO_MBR_ST, 0);
  EXPECT_EQ(vf1_.read(reg::MMIO_MBR_ST), 1u);
  vf1_.write(reg::MMIO_MBR_ST, 1);
  EXPECT_EQ(vf1_.read(reg::MMIO_MBR_ST), 0u);
  EXPECT_EQ(pf_.read(reg::MMIO_MBS_ST), 2u);
  pf_.write(reg::MMIO_MBS_ST, 2);
  EXPECT_EQ(pf_.read(reg::MMIO_MBS_ST), 0u);
  vf0_.write(reg::MMIO_MBS_CTL, message(0));
  EXPECT_EQ(pf_.read(reg::MMIO_MBR_ST), 1u);
  pf_.write(reg::MMIO_MBR_ST, 1);
  EXPECT_EQ(vf0_.read(reg::MMIO_MBS_ST), 1u);
}

// D-216
TEST_F(MailboxTest, Message0IsRaisedIfEnabledOnce) {
  pf_.write(reg::MMIO_MBS_CTL, message(0));
  EXPECT_EQ(vf0_.interrupts(0), 0u);
  vf0_.write(reg::MMIO_MBR_ST, 1);
  vf0_.write(reg::MMIO_MB_CTL, 2);
  pf_.write(reg::MMIO_MB_CTL, 1);
  pf_.write(reg::MMIO_MBS_ST, 1);
  pf_.write(reg::MMIO_MBS_CTL, message(0));
  pf_.write(reg::MMIO_MBS_CTL, message(0));
  EXPECT_EQ(vf0_.interrupts(0), 1u);
  vf0_.write(reg::MMIO_MBR_ST, 1);
  EXPECT_EQ(pf_.interrupts(0), 1u);
}

TEST_F(MailboxTest, AMessageToAVfThatIsNotThereIsDropped) {
  pf_.write(reg::MMIO_MBS_CTL, message(2));
  pf_.write(reg::MMIO_MBS_CTL, message(0xffff));
  EXPECT_EQ(pf_.read(0x60000 + 0xffff0), 0u);
}

}  // namespace
}  // namespace softhca::sdxi::test
