// The fast path executes many descriptors in a turn, in memory of this process. Its effects equal
// those of one-by-one execution.
#include <gtest/gtest.h>

#include "sdxi/machine.h"

namespace softhca::sdxi::test {
namespace {

using akey_t = spec::akey_ent;
using ent = spec::errlog_hd_ent;
using spec::cxtv;

class ExpressTest : public ::testing::Test {
 protected:
  ExpressTest() {
    m_.activate();
    c_ = m_.start_context(1, kRing);
    from_ = m_.allocate(4 * kSize), to_ = m_.allocate(4 * kSize);
    m_.fill(from_, 4 * kSize, 3);
  }
  /// Executes everything that was pushed.
  void run() {
    m_.doorbell(c_.number, m_.write_index(c_));
    m_.run();
  }
  void expect_done() {
    EXPECT_EQ(m_.state(c_), cxtv::CXTV_RUN);
    EXPECT_EQ(m_.read_index(c_), m_.write_index(c_));
    EXPECT_EQ(m_.records(), 0u);
  }

  static constexpr std::size_t kSize = 4096;
  static constexpr std::uint32_t kRing = 128;
  static constexpr Pasid kPasid = 7;
  static constexpr Iova kElsewhere = Iova{1} << 40;
  FunctionGroup group_;
  Pasids pasids_;
  Machine m_{group_, {.pasid_spaces = &pasids_}};
  Machine::Context c_;
  Iova from_ = 0, to_ = 0;
};

// SDXI 3.2.5: an AKey names one address space, even if the turn uses others.
TEST_F(ExpressTest, EachOfManyKeysReachesItsOwnMemory) {
  ASSERT_TRUE(pasids_.spaces[kPasid].map(Machine::kBase, Machine::kMemory / 2,
                                         m_.host(Machine::kBase) + Machine::kMemory / 2,
                                         pcie::DmaAccess::kReadWrite));
  const auto far = to_ + Machine::kMemory / 2;
  const auto is_far = [](std::uint16_t key) { return key < 6 || key == 10; };
  for (const std::uint16_t key : {2, 3, 6, 10, 255}) {
    m_.akey(c_, key).set(akey_t::vl, 1);
    m_.akey(c_, key).set(akey_t::pv, is_far(key));
    m_.akey(c_, key).set(akey_t::pasid, kPasid);
  }
  unsigned n = 0;
  for (const std::uint16_t key : {2, 3, 6, 255, 10, 3}) {
    const auto at = n++ * 64u;
    m_.push(c_, copy(from_ + at, to_ + at, 64, 0, key));
    m_.push(c_, copy(from_ + at, to_ + kSize + at, 64, 0, static_cast<std::uint16_t>(0)));
  }
  run();
  expect_done();
  n = 0;
  for (const std::uint16_t key : {2, 3, 6, 255, 10, 3}) {
    const auto at = n++ * 64u;
    EXPECT_EQ(m_.equal(from_ + at, to_ + at, 64), !is_far(key)) << key;
    EXPECT_EQ(m_.equal(from_ + at, far + at, 64), is_far(key)) << key;
    EXPECT_TRUE(m_.equal(from_ + at, to_ + kSize + at, 64));
  }
}

TEST_F(ExpressTest, BuffersInTwoMappingsAreReachedInTurn) {
  std::vector<std::byte> other(2 * kSize);
  ASSERT_TRUE(
      m_.device->dma().map(kElsewhere, other.size(), other.data(), pcie::DmaAccess::kReadWrite));
  for (std::size_t at = 0; at < kSize; at += 256) {
    m_.push(c_, copy(from_ + at, kElsewhere + at, 256));
    m_.push(c_, copy(from_ + at, to_ + at, 256));
    m_.push(c_, copy(kElsewhere + at, to_ + kSize + at, 256));
  }
  run();
  expect_done();
  EXPECT_EQ(0, std::memcmp(other.data(), m_.host(from_), kSize));
  EXPECT_TRUE(m_.equal(from_, to_, kSize));
  EXPECT_TRUE(m_.equal(from_, to_ + kSize, kSize));
}

// The first bytes may have been copied, none beyond the mapping. Later descriptors are not
// executed.
TEST_F(ExpressTest, ACopyThatLeavesItsMappingEndsTheContext) {
  std::vector<std::byte> other(kSize + 64, std::byte{0xee});
  ASSERT_TRUE(m_.device->dma().map(kElsewhere, kSize, other.data(), pcie::DmaAccess::kReadWrite));
  m_.push(c_, copy(from_, kElsewhere, kSize));
  m_.push(c_, nop());
  auto d = copy(from_, kElsewhere + 64, kSize);
  const auto block = m_.attach_completion(d);
  m_.push(c_, d);
  m_.push(c_, copy(from_, to_, kSize));
  run();
  EXPECT_EQ(m_.state(c_), cxtv::CXTV_ERR_FN);
  EXPECT_EQ(m_.read_index(c_), 3u);
  EXPECT_TRUE(m_.er(block));
  EXPECT_FALSE(m_.equal(from_, to_, kSize));
  ASSERT_EQ(m_.records(), 1u);
  EXPECT_EQ(m_.record(0).get(ent::dsc_index), 2u);
  EXPECT_EQ(m_.record(0).get(ent::step), static_cast<unsigned>(spec::err_step::ERRV_DSC_BUF));
  for (std::size_t i = kSize; i < other.size(); ++i) EXPECT_EQ(other[i], std::byte{0xee});
}

TEST_F(ExpressTest, ReadOnlyMemoryIsNotWrittenNorWriteOnlyMemoryRead) {
  std::vector<std::byte> other(kSize, std::byte{0xee});
  for (const auto access : {pcie::DmaAccess::kRead, pcie::DmaAccess::kWrite}) {
    const bool reads = access == pcie::DmaAccess::kRead;
    ASSERT_TRUE(m_.device->dma().map(kElsewhere, kSize, other.data(), access));
    const auto& c = m_.start_context(reads ? 2 : 3);
    m_.push(c, reads ? copy(kElsewhere, to_, 64) : copy(from_, kElsewhere, 64));
    m_.push(c, reads ? copy(from_, kElsewhere, 64) : copy(kElsewhere, to_, 64));
    const auto before = std::vector<std::byte>(m_.host(to_), m_.host(to_) + 64);
    m_.doorbell(c.number, 2);
    m_.run();
    EXPECT_EQ(m_.state(c), cxtv::CXTV_ERR_FN);
    EXPECT_EQ(m_.record(m_.records() - 1).get(ent::dsc_index), 1u);
    if (reads) {
      EXPECT_EQ(other[0], std::byte{0xee});
      EXPECT_EQ(m_.host(to_)[0], std::byte{0xee});
    } else {
      EXPECT_EQ(0, std::memcmp(other.data(), m_.host(from_), 64));
      EXPECT_TRUE(std::equal(before.begin(), before.end(), m_.host(to_)));
    }
    ASSERT_TRUE(m_.device->dma().unmap(kElsewhere, kSize));
  }
}

// SDXI 4.3.1: after the update no descriptor uses the old entry.
TEST_F(ExpressTest, AnUpdatedKeyIsLookedUpAgain) {
  m_.akey(c_, 3).set(akey_t::vl, 1);
  m_.push(c_, copy(from_, to_, 64, 3, 3));
  run();
  expect_done();
  m_.akey(c_, 3).set(akey_t::vl, 0);
  EXPECT_FALSE(
      m_.admin(admin_range<spec::dsc_akey_upd>(spec::admin_subtype::DSC_AKEY_UPD, 1, 1)).er);
  m_.push(c_, copy(from_, to_ + 64, 64, 3, 0));
  run();
  EXPECT_EQ(m_.state(c_), cxtv::CXTV_ERR_FN);
  EXPECT_FALSE(m_.equal(from_, to_ + 64, 64));
}

TEST_F(ExpressTest, MemoryThatWasUnmappedIsNotReached) {
  std::vector<std::byte> other(kSize, std::byte{0xee});
  for (const ContextNumber number : {2, 3}) {
    ASSERT_TRUE(m_.device->dma().map(kElsewhere, kSize, other.data(), pcie::DmaAccess::kReadWrite));
    const auto& c = m_.start_context(number);
    auto d = copy(from_, number == 2 ? kElsewhere : to_, 64);
    footer(d).set(spec::dsc_footer::np, number == 2);
    if (number == 3) spec::set_address(footer(d), spec::dsc_footer::csb_ptr, kElsewhere);
    m_.submit(c, d);
    m_.run();
    EXPECT_EQ(m_.state(c), cxtv::CXTV_RUN);
    ASSERT_TRUE(m_.device->dma().unmap(kElsewhere, kSize));
    std::ranges::fill(other, std::byte{0xee});
    m_.submit(c, d);
    m_.run();
    EXPECT_EQ(m_.state(c), cxtv::CXTV_ERR_FN);
    EXPECT_EQ(std::ranges::count(other, std::byte{0xee}), std::ptrdiff_t{kSize});
  }
}

// SDXI 5.3: the device uses its copy of the descriptor, even if the copy overwrites the descriptor
// in the ring.
TEST_F(ExpressTest, ACopyOverItsOwnDescriptorCompletesAsItWas) {
  auto d = copy(from_, m_.slot(c_, 0) + 8, 56);
  const auto block = m_.attach_completion(d), wrong = m_.allocate(32, 32);
  m_.store64(wrong, 1);
  auto planted = d;
  spec::set_address(footer(planted), spec::dsc_footer::csb_ptr, wrong);
  std::copy(planted.begin() + 8, planted.end(), m_.host(from_));
  m_.push(c_, d);
  run();
  expect_done();
  EXPECT_EQ(m_.signal(block), 0u);
  EXPECT_EQ(m_.signal(wrong), 1u);
  EXPECT_FALSE(m_.valid(c_, 0));
}

// SDXI 4.4.2, 8.4: with and without AtomicOp Requester Enable.
TEST_F(ExpressTest, DescriptorsOfATurnCountASignalDown) {
  const auto block = m_.allocate(32, 32);
  for (const std::uint16_t atomic_requests : {1 << 6, 0}) {
    m_.device->write_config(pcie::ConfigSpace::kExpressAt + 0x28,
                            std::as_bytes(std::span(&atomic_requests, 1)));
    m_.store64(block, 100);
    for (unsigned i = 0; i < 100; ++i) {
      auto d = i % 3 == 0 ? nop() : copy(from_, to_, i);
      header(d).set(spec::dsc_header::csr, 0);
      footer(d).set(spec::dsc_footer::np, 0);
      spec::set_address(footer(d), spec::dsc_footer::csb_ptr, block);
      m_.push(c_, d);
    }
    run();
    expect_done();
    EXPECT_EQ(m_.signal(block), 0u);
  }
}

// Work is charged for descriptors of any size.
TEST_F(ExpressTest, ManySmallCopiesAreWorkLikeALargeOne) {
  const auto bytes = [this] { return m_.device->contexts().statistics().bytes; };
  const auto descriptors = [this] { return m_.device->contexts().statistics().descriptors; };
  const auto work = m_.device->work_done();
  const auto before = bytes(), count = descriptors();
  for (unsigned i = 0; i < 100; ++i) m_.push(c_, i % 2 == 0 ? nop() : copy(from_, to_, kSize));
  run();
  expect_done();
  const auto cost = std::uint64_t{m_.device->options().descriptor_bytes};
  EXPECT_EQ(bytes() - before, 100 * cost + 50 * kSize);
  EXPECT_EQ(descriptors() - count, 100u);
  EXPECT_GE(m_.device->work_done() - work,
            static_cast<std::int64_t>((100 * cost + 50 * kSize) / 8));
}

// A run() with a small budget stops at it; the rest comes later.
TEST_F(ExpressTest, ARunEndsBetweenSmallCopiesWhenItsWorkIsDone) {
  for (unsigned i = 0; i < 100; ++i) m_.push(c_, copy(from_, to_, kSize));
  m_.doorbell(c_.number, 100);
  const auto before = m_.device->work_done();
  for (int i = 1; i <= 20; ++i) {
    (void)m_.device->run(m_.now(), 1000);
    EXPECT_LE(m_.device->work_done() - before,
              i * 1000 + m_.device->options().descriptor_bytes / 8);
  }
  EXPECT_LT(m_.read_index(c_), 60u);
  m_.run();
  expect_done();
}

// SDXI 5.3 step 5: a producer slower than the device is not taken for one that has stopped.
TEST_F(ExpressTest, ThePauseOfAMissingValidBitIsShortAgainAfterEachDescriptor) {
  auto late = nop();
  header(late).set(spec::dsc_header::vl, 0);
  auto index = m_.push(c_, late);
  run();
  for (int i = 0; i < 20; ++i) {
    m_.at<spec::dsc_header>(m_.slot(c_, index)).set(spec::dsc_header::vl, 1);
    index = m_.push(c_, late);
    m_.advance(m_.device->options().valid_poll_min);
    const auto next = m_.step();
    ASSERT_EQ(m_.read_index(c_), index);
    ASSERT_LE(next - m_.now(), m_.device->options().valid_poll_min) << i;
  }
}

// SDXI 5.2: a producer with a ring larger than a turn sees free slots before the turn ends.
TEST_F(ExpressTest, ReadIndexIsWrittenBeforeTheRingIsEmpty) {
  const auto at = c_.sts + spec::cxt_sts::read_index.kOffset;
  // The copy captures Read_Index at that time.
  for (unsigned i = 0; i < 64; ++i) m_.push(c_, nop());
  m_.push(c_, copy(at, to_, 8));
  run();
  expect_done();
  EXPECT_GE(m_.load64(to_), 32u);
}

}  // namespace
}  // namespace softhca::sdxi::test
