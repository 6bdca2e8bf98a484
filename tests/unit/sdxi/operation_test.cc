// SDXI 6: the effects of the operations.
#include "sdxi/operation.h"

#include <gtest/gtest.h>

#include <thread>

#include "sdxi/machine.h"

namespace softhca::sdxi::test {
namespace {

using reg = spec::mmio_register;
using ent = spec::errlog_hd_ent;
using spec::atomic_subtype;
using spec::cxtv;

class OperationTest : public ::testing::Test {
 protected:
  OperationTest() {
    m_.activate();
    c_ = m_.start_context(5, 256);
  }
  /// Returns the context to CXTV_RUN after an error, as privileged software would.
  void recover() {
    m_.set_state(c_, cxtv::CXTV_STOP_SW);
    ASSERT_FALSE(m_.admin(start(5, 5)).er);
  }
  void expect_error(const Descriptor& d, spec::err_step step, unsigned err_class) {
    const auto records = m_.records();
    const auto outcome = m_.execute(c_, d);
    EXPECT_TRUE(outcome.done);
    EXPECT_TRUE(outcome.er);
    EXPECT_EQ(m_.state(c_), cxtv::CXTV_ERR_FN);
    ASSERT_EQ(m_.records(), records + 1);  // one record of the execution phase
    EXPECT_EQ(m_.record(records).get(ent::step), static_cast<unsigned>(step));
    EXPECT_EQ(m_.record(records).get(ent::err_class), err_class);
    recover();
  }
  FunctionGroup group_;
  Machine m_{group_};
  Machine::Context c_;
};

TEST(OperationTableTest, HoldsThe27OperationsOfTheDocument) {
  EXPECT_EQ(operations().size(), 27u);
  for (const auto& operation : operations()) {
    EXPECT_EQ(find_operation(static_cast<std::uint32_t>(operation.type), operation.subtype),
              &operation);
    EXPECT_FALSE(operation.name.empty());
  }
}

// D-161
TEST_F(OperationTest, NopCompletesAndTouchesNothingElse) {
  FunctionGroup group;
  Machine m(group, {}, nullptr, Machine::Memory::kTraced);
  m.activate();
  auto& c = m.start_context(1);
  auto d = nop();
  const auto block = m.attach_completion(d);
  m.submit(c, d);
  m.trace.accesses.clear();
  m.run();
  EXPECT_EQ(m.signal(block), 0u);
  EXPECT_EQ(m.records(), 0u);
  for (const auto& access : m.trace.accesses) {
    const auto within = [&](Iova from, std::size_t size) {
      return from <= access.at && access.at + access.size <= from + size;
    };
    // To start a context, the function reads these structures.
    const bool tables = within(m.l2_entry(1), 8) || within(c.l1, 32) || within(c.ctl, 64) ||
                        within(c.write_index, 8);
    EXPECT_TRUE(within(c.ring, 64) || within(block, 32) || within(c.sts, 64) ||
                (tables && !access.write))
        << (access.write ? "write " : "read ") << access.at - Machine::kBase;
  }
}

// D-151: the signal cannot be written; er, in the same block, can.
TEST_F(OperationTest, AnErrorIsSignaledWhereTheSignalItselfCannotBe) {
  FunctionGroup group;
  Machine m(group, {}, nullptr, Machine::Memory::kTraced);
  m.activate();
  auto& c = m.start_context(1);
  auto d = nop();
  const auto block = m.attach_completion(d);
  m.trace.refuse_writes_at = block;
  m.submit(c, d);
  m.run();
  EXPECT_EQ(m.state(c), cxtv::CXTV_ERR_FN);
  EXPECT_EQ(m.signal(block), 1u);
  EXPECT_TRUE(m.er(block));
}

// D-162
TEST_F(OperationTest, WriteImmediateWritesOneTo32BytesAtAnyAddress) {
  std::array<std::byte, 32> data;
  for (std::size_t i = 0; i < 32; ++i) data[i] = static_cast<std::byte>(i + 1);
  for (const std::size_t size : {1u, 2u, 31u, 32u}) {
    for (const Iova skip : {0u, 1u, 7u}) {
      const auto to = m_.allocate(64) + skip;
      std::memset(m_.host(to) - skip, 0xee, 64);
      m_.execute(c_, write_immediate(to, std::span(data).first(size)));
      EXPECT_EQ(0, std::memcmp(m_.host(to), data.data(), size));
      EXPECT_EQ(*m_.host(to + size), std::byte{0xee});
    }
  }
}

// D-163
TEST_F(OperationTest, CopyIsExactForSizesAndAlignments) {
  for (const std::uint64_t size : {1ull, 2ull, 63ull, 64ull, 65ull, 4095ull, 4097ull, 1000003ull}) {
    for (const Iova skip : {0u, 1u, 13u}) {
      const auto from = m_.allocate(size + 64) + skip, to = m_.allocate(size + 64) + 2 * skip;
      m_.fill(from, size, static_cast<unsigned>(size + skip));
      *m_.host(to + size) = std::byte{0xee};
      EXPECT_FALSE(m_.execute(c_, copy(from, to, size)).er);
      EXPECT_TRUE(m_.equal(from, to, size));
      EXPECT_EQ(*m_.host(to + size), std::byte{0xee});
    }
  }
}

// D-163: 2^32 bytes, the maximum of the size field, in few pages that are mapped repeatedly.
TEST_F(OperationTest, TheLargestCopyIsExact) {
  constexpr std::uint64_t kSize = std::uint64_t{1} << 32, kPiece = 1 << 20;
  constexpr Iova kFrom = Iova{1} << 40, kTo = Iova{1} << 41;
  const auto source = m_.allocate(kPiece), target = m_.allocate(kPiece), last = m_.allocate(kPiece);
  m_.fill(source, kPiece, 3);
  auto& dma = m_.device->dma();
  for (std::uint64_t at = 0; at < kSize; at += kPiece) {
    ASSERT_TRUE(dma.map(kFrom + at, kPiece, m_.host(source), pcie::DmaAccess::kRead));
    const auto to = at + kPiece == kSize ? last : target;  // nothing is mapped behind it
    ASSERT_TRUE(dma.map(kTo + at, kPiece, m_.host(to), pcie::DmaAccess::kReadWrite));
  }
  EXPECT_FALSE(m_.execute(c_, copy(kFrom, kTo, kSize)).er);
  EXPECT_TRUE(m_.equal(source, target, kPiece));
  EXPECT_TRUE(m_.equal(source, last, kPiece));
  EXPECT_GE(m_.device->contexts().statistics().bytes, kSize);
}

TEST_F(OperationTest, CopyCrossesMappingsOfBothKinds) {
  FunctionGroup group;
  Machine m(group);
  m.activate();
  auto& c = m.start_context(1);
  // Behind the machine's memory: pieces of 4 KiB, alternately local and remote.
  std::vector<std::byte> extra(64 << 10);
  const auto base = Machine::kBase + Machine::kMemory;
  Trace trace;
  trace.attach(extra.data(), base);
  for (std::size_t at = 0; at < extra.size(); at += 4096) {
    if (at / 4096 % 2 == 0) {
      ASSERT_TRUE(
          m.device->dma().map(base + at, 4096, extra.data() + at, pcie::DmaAccess::kReadWrite));
    } else {
      ASSERT_TRUE(m.device->dma().map_remote(base + at, 4096, trace, pcie::DmaAccess::kReadWrite));
    }
  }
  const auto from = m.allocate(60000), back = m.allocate(60000);
  m.fill(from, 60000, 4);
  EXPECT_FALSE(m.execute(c, copy(from, base + 100, 60000)).er);
  EXPECT_EQ(0, std::memcmp(m.host(from), extra.data() + 100, 60000));
  EXPECT_FALSE(m.execute(c, copy(base + 100, back, 60000)).er);
  EXPECT_TRUE(m.equal(from, back, 60000));
}

// D-164
TEST_F(OperationTest, CopyAboveMaxBufferIsAnError) {
  const auto limit = std::uint64_t{2} << 20;
  m_.at<spec::cxt_l1_ent>(c_.l1).set(spec::cxt_l1_ent::max_buffer, 0);
  m_.admin(update_contexts(5, 5, spec::tgt_pcd::UPD_L1));
  const auto from = m_.allocate(limit + 1), to = m_.allocate(limit + 1);
  EXPECT_FALSE(m_.execute(c_, copy(from, to, limit)).er);
  expect_error(copy(from, to, limit + 1), spec::err_step::ERRV_DSC_GEN, 0x2310);
}

TEST_F(OperationTest, TheFunctionsMaxBufferLimitsToo) {
  m_.set_field<spec::mmio_ctl2>(reg::MMIO_CTL2, spec::mmio_ctl2::max_buffer, 0);
  const auto limit = std::uint64_t{2} << 20;
  const auto from = m_.allocate(limit + 1), to = m_.allocate(limit + 1);
  expect_error(copy(from, to, limit + 1), spec::err_step::ERRV_DSC_GEN, 0x2310);
}

// D-165 D-167
TEST_F(OperationTest, RepeatCopyWritesAdjacentCopies) {
  const auto from = m_.allocate(2 * 4096, 4096), to = m_.allocate(10 * 4096, 4096);
  m_.fill(from, 2 * 4096, 9);
  EXPECT_FALSE(m_.execute(c_, repeat_copy(from, to, 2, 5)).er);
  for (std::uint64_t i = 0; i < 5; ++i) EXPECT_TRUE(m_.equal(from, to + i * 8192, 8192));
  std::memset(m_.host(from), 0, 4096);
  auto zero = repeat_copy(from, to, 1, 10);
  edit<spec::dsc_dmab_repcopy>(zero).set(spec::dsc_dmab_repcopy::az, 1);
  EXPECT_FALSE(m_.execute(c_, zero).er);
  for (std::uint64_t i = 0; i < 10; ++i) EXPECT_TRUE(m_.equal(from, to + i * 4096, 4096));
}

// D-166
TEST_F(OperationTest, RepeatCopyAboveMaxBufferIsAnError) {
  m_.set_field<spec::mmio_ctl2>(reg::MMIO_CTL2, spec::mmio_ctl2::max_buffer, 0);
  const auto from = m_.allocate(4096, 4096), to = m_.allocate(513 * 4096, 4096);
  EXPECT_FALSE(m_.execute(c_, repeat_copy(from, to, 1, 512)).er);
  expect_error(repeat_copy(from, to, 1, 513), spec::err_step::ERRV_DSC_GEN, 0x2310);
}

// D-168 D-169
TEST_F(OperationTest, ReservedCoherencyIsRefusedAndTheOthersAreHints) {
  using dsc = spec::dsc_dmab_copy;
  const auto from = m_.allocate(64), to = m_.allocate(64);
  for (unsigned coherency = 0; coherency < 3; ++coherency) {
    auto d = copy(from, to, 64);
    edit<dsc>(d).set(dsc::coh_src, coherency);
    edit<dsc>(d).set(dsc::coh_dst, coherency);
    edit<dsc>(d).set(dsc::mmio_dst, 1);
    EXPECT_FALSE(m_.execute(c_, d).er);
  }
  auto source = copy(from, to, 64), destination = copy(from, to, 64);
  edit<dsc>(source).set(dsc::coh_src, 3);
  edit<dsc>(destination).set(dsc::coh_dst, 3);
  expect_error(source, spec::err_step::ERRV_DSC_GEN, 0x2100);
  expect_error(destination, spec::err_step::ERRV_DSC_GEN, 0x2100);
}

// D-168: the attributes of every operation that has them.
TEST_F(OperationTest, EachOperationRefusesReservedCoherency) {
  const auto from = m_.allocate(4096, 4096), to = m_.allocate(4096, 4096);
  const auto with = [&]<class Layout, class Field>(Descriptor d, Layout, Field field,
                                                   unsigned value) {
    edit<Layout>(d).set(field, value);
    return d;
  };
  const std::array<std::byte, 4> data{};
  const auto each = [&](unsigned value) {
    using write = spec::dsc_dmab_wrt_imm;
    using repeat = spec::dsc_dmab_repcopy;
    using atm = spec::dsc_atm;
    return std::array{
        with(write_immediate(to, data), write{}, write::coh_dst, value),
        with(repeat_copy(from, to, 1, 1), repeat{}, repeat::coh_src, value),
        with(repeat_copy(from, to, 1, 1), repeat{}, repeat::coh_dst, value),
        with(atomic(atomic_subtype::DSC_ATM_UADD, to, 8, 1), atm{}, atm::coh_dst, value)};
  };
  for (const unsigned value : {0u, 1u, 2u}) {
    for (const auto& d : each(value)) EXPECT_FALSE(m_.execute(c_, d).er) << value;
  }
  for (const auto& d : each(3)) expect_error(d, spec::err_step::ERRV_DSC_GEN, 0x2100);
}

// D-200 D-209
TEST_F(OperationTest, InaccessibleBuffersAreNamedInTheRecord) {
  const auto good = m_.allocate(8192);
  expect_error(copy(0x1000, good, 8), spec::err_step::ERRV_DSC_BUF, 0x3400);
  EXPECT_EQ(m_.record(0).get(ent::buf), 0u);
  EXPECT_EQ(m_.record(0).get(ent::sub_step), 1u);
  expect_error(copy(good, 0x1000, 8), spec::err_step::ERRV_DSC_BUF, 0x3400);
  EXPECT_EQ(m_.record(1).get(ent::buf), 1u);
  EXPECT_EQ(m_.record(1).get(ent::bv), 1u);
  static std::byte page[4096];
  ASSERT_TRUE(m_.device->dma().map(0x10000, 4096, page, pcie::DmaAccess::kRead));
  expect_error(copy(good, 0x10000, 8), spec::err_step::ERRV_DSC_BUF, 0x3100);
  EXPECT_EQ(m_.record(2).get(ent::sub_step), 2u);
  EXPECT_FALSE(m_.execute(c_, copy(0x10000, good, 8)).er);
  // One byte too many, at both ends of the address space.
  expect_error(copy(Machine::kBase + Machine::kMemory - 8, good, 9), spec::err_step::ERRV_DSC_BUF,
               0x3400);
  expect_error(copy(~std::uint64_t{0} - 3, good, 8), spec::err_step::ERRV_DSC_BUF, 0x3400);
  expect_error(write_immediate(0x1000, std::span(page).first(4)), spec::err_step::ERRV_DSC_BUF,
               0x3400);
}

template <class Word>
Word reference(atomic_subtype s, Word old, Word a, Word b) {
  using S = std::make_signed_t<Word>;
  switch (static_cast<unsigned>(s)) {
    case 0x1:
      return a;
    case 0x2:
      return static_cast<Word>(old + a);
    case 0x3:
      return static_cast<Word>(old - a);
    case 0x5:
      return old & a;
    case 0x6:
      return old | a;
    case 0x7:
      return old ^ a;
    case 0x8:
      return static_cast<Word>(std::min(static_cast<S>(old), static_cast<S>(a)));
    case 0x9:
      return static_cast<Word>(std::max(static_cast<S>(old), static_cast<S>(a)));
    case 0xa:
      return std::min(old, a);
    case 0xb:
      return std::max(old, a);
    case 0xc:
      return old >= a ? 0 : old + 1;
    case 0xd:
      return (old == 0 || old > a) ? a : old - 1;
    default:
      return old == a ? b : old;
  }
}

// D-171 D-174 D-176
TEST_F(OperationTest, AtomicsMatchTheTableIn4And8Bytes) {
  const std::array<std::uint64_t, 6> values{
      0, 1, 7, 0x7fffffff'7fffffff, 0x80000000'80000000, ~std::uint64_t{0}};
  const auto at = m_.allocate(64), back = m_.allocate(64);
  for (const unsigned s : {1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}) {
    const auto subtype = static_cast<atomic_subtype>(s);
    for (const auto old : values) {
      for (const auto op1 : values) {
        m_.store64(at, old);
        m_.submit(c_, atomic(subtype, at, 8, op1, 0x1234, back));
        m_.run();
        ASSERT_EQ(m_.load64(at), reference<std::uint64_t>(subtype, old, op1, 0x1234)) << s;
        ASSERT_EQ(m_.load64(back), old);
        m_.store64(at, old);
        m_.submit(c_, atomic(subtype, at + 4, 4, op1, 0x1234, back));
        m_.run();
        const auto word = static_cast<std::uint32_t>(old >> 32);
        const auto want =
            reference<std::uint32_t>(subtype, word, static_cast<std::uint32_t>(op1), 0x1234);
        ASSERT_EQ(m_.load64(at), (old & 0xffffffff) | std::uint64_t{want} << 32) << s;
        ASSERT_EQ(static_cast<std::uint32_t>(m_.load64(back)), word);
      }
    }
  }
}

// D-174
TEST_F(OperationTest, WithNrTheOldValueIsNotReturned) {
  const auto at = m_.allocate(64), back = m_.allocate(64);
  m_.store64(back, 55);
  auto d = atomic(atomic_subtype::DSC_ATM_SWAP, at, 8, 1, 0, back);
  edit<spec::dsc_atm>(d).set(spec::dsc_atm::nr, 1);
  EXPECT_FALSE(m_.execute(c_, d).er);
  EXPECT_EQ(m_.load64(back), 55u);
}

TEST_F(OperationTest, AMisalignedReturnAddressIsRefusedBeforeTheTargetChanges) {
  for (const unsigned size : {4u, 8u}) {
    const auto at = m_.allocate(8, 8);
    m_.store64(at, 40);
    // ret_data_ptr has no bits below 4 bytes.
    const auto back = m_.allocate(16, 8) + (size == 8 ? 4 : 0);
    m_.store64(back / 8 * 8, 77);
    const auto outcome =
        m_.execute(c_, atomic(spec::atomic_subtype::DSC_ATM_UADD, at, size, 2, 0, back));
    EXPECT_EQ(outcome.er, size == 8);
    EXPECT_EQ(m_.load64(at), size == 8 ? 40u : 42u);
    EXPECT_EQ(m_.load64(back / 8 * 8), size == 8 ? 77u : 40u);
    EXPECT_EQ(m_.state(c_), size == 8 ? cxtv::CXTV_ERR_FN : cxtv::CXTV_RUN);
  }
  EXPECT_EQ(m_.record(0).get(ent::step), 9u);
}

// D-175
TEST_F(OperationTest, ReturnDataAndTargetAreWrittenBeforeTheCompletion) {
  FunctionGroup group;
  Machine m(group, {}, nullptr, Machine::Memory::kTraced);
  m.activate();
  auto& c = m.start_context(1);
  const auto at = m.allocate(64), back = m.allocate(64);
  auto d = atomic(atomic_subtype::DSC_ATM_UADD, at, 8, 1, 0, back);
  const auto block = m.attach_completion(d);
  m.submit(c, d);
  m.run();
  EXPECT_LT(m.trace.write_of(at), m.trace.write_of(block));
  EXPECT_LT(m.trace.write_of(back), m.trace.write_of(block));
}

// D-173
TEST_F(OperationTest, OperandSizeAndAlignmentAreChecked) {
  const auto at = m_.allocate(64);
  auto size = atomic(atomic_subtype::DSC_ATM_SWAP, at, 8, 1);
  edit<spec::dsc_atm>(size).set(spec::dsc_atm::osz, 2);
  expect_error(size, spec::err_step::ERRV_DSC_GEN, 0x2100);
  expect_error(atomic(atomic_subtype::DSC_ATM_SWAP, at + 4, 8, 1), spec::err_step::ERRV_DSC_GEN,
               0x2100);
  expect_error(atomic(atomic_subtype::DSC_ATM_SWAP, at, 8, 1, 0, at + 12),
               spec::err_step::ERRV_ATOMIC, 0x2100);
  expect_error(atomic(atomic_subtype::DSC_ATM_SWAP, at, 8, 1, 0, 0x1000),
               spec::err_step::ERRV_ATOMIC, 0x3400);
  expect_error(atomic(atomic_subtype::DSC_ATM_SWAP, 0x1000, 8, 1), spec::err_step::ERRV_DSC_BUF,
               0x3400);
}

// D-172
TEST_F(OperationTest, ConcurrentAddersLoseNothing) {
  const auto at = m_.allocate(64);
  auto* word = reinterpret_cast<std::uint64_t*>(m_.host(at));
  constexpr int kAdds = 20000;
  std::thread other([word] {
    for (int i = 0; i < kAdds; ++i) __atomic_fetch_add(word, 1, __ATOMIC_RELAXED);
  });
  for (int i = 0; i < kAdds; ++i) {
    m_.submit(c_, atomic(atomic_subtype::DSC_ATM_UADD, at, 8, 1));
    if (i % 100 == 99) m_.run();
  }
  m_.run();
  other.join();
  EXPECT_EQ(m_.load64(at), 2u * kAdds);
}

// D-177
TEST_F(OperationTest, IntrRaisesTheVectorOfTheAKeyOnce) {
  m_.akey(c_, 2).set(spec::akey_ent::vl, 1);
  m_.akey(c_, 2).set(spec::akey_ent::iv, 1);
  m_.akey(c_, 2).set(spec::akey_ent::intr_num, 17);
  EXPECT_FALSE(m_.execute(c_, interrupt(2)).er);
  EXPECT_EQ(m_.interrupts(17), 1u);
  expect_error(interrupt(0), spec::err_step::ERRV_DSC_AKEY, 0x2370);  // iv = 0
  m_.akey(c_, 2).set(spec::akey_ent::intr_num, 2000);
  expect_error(interrupt(2), spec::err_step::ERRV_DSC_AKEY, 0x2370);
}

TEST_F(OperationTest, AnInterruptComesAfterTheDataBeforeItsFence) {
  const auto from = m_.allocate(4 << 20), to = m_.allocate(4 << 20);
  m_.fill(from, 4 << 20, 1);
  m_.push(c_, copy(from, to, 4 << 20));
  auto d = interrupt(1);
  header(d).set(spec::dsc_header::fe, 1);
  m_.push(c_, d);
  m_.doorbell(5, 2);
  while (m_.interrupts(1) == 0) m_.step();
  EXPECT_TRUE(m_.equal(from, to, 4 << 20));
}

// D-178
TEST_F(OperationTest, AdmIntrRaisesAVectorOfTheLocalFunction) {
  EXPECT_FALSE(m_.admin(admin_interrupt(9)).er);
  EXPECT_EQ(m_.interrupts(9), 1u);
  EXPECT_TRUE(m_.admin(admin_interrupt(130)).er);
  EXPECT_EQ(m_.record(0).get(ent::err_class), 0x2370u);
}

// D-179
TEST_F(OperationTest, VendorOperationsAreRefused) {
  for (unsigned type = 0x1c; type <= 0x1f; ++type) {
    m_.submit(c_, make(static_cast<spec::dsc_type>(type), 0));
    m_.run();
    EXPECT_EQ(m_.state(c_), cxtv::CXTV_ERR_FN);
    m_.store64(c_.write_index, m_.read_index(c_));
    recover();
  }
}

TEST_F(OperationTest, OverlappingBuffersDoNoHarm) {
  const auto at = m_.allocate(8192);
  EXPECT_FALSE(m_.execute(c_, copy(at, at + 1, 5000)).er);
  EXPECT_EQ(m_.state(c_), cxtv::CXTV_RUN);
}

}  // namespace
}  // namespace softhca::sdxi::test
