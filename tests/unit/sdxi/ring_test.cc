// SDXI 5: the descriptor ring: indices, valid bits and doorbells.
#include <gtest/gtest.h>

#include "sdxi/ring_machine.h"

namespace softhca::sdxi::test {
namespace {

using reg = spec::mmio_register;
using ent = spec::errlog_hd_ent;
using spec::cxtv;
using hdr = spec::dsc_header;

// D-072 D-123
TEST_F(RingTest, RingsOfAnySizeWrap) {
  for (const std::uint32_t size : {1u, 3u, 1000u}) {
    auto& c = m_.start_context(static_cast<ContextNumber>(10 + size % 90), size);
    for (std::uint32_t i = 0; i < 2 * size + 3; ++i) {
      const auto to = m_.allocate(8);
      const std::uint64_t value = i + 1;
      m_.submit(c, write_immediate(to, std::as_bytes(std::span(&value, 1))));
      m_.run();
      ASSERT_EQ(m_.load64(to), i + 1u);
    }
    EXPECT_EQ(m_.read_index(c), 2 * size + 3u);
  }
}

TEST_F(RingTest, DescriptorsAreTakenTogetherUpToTheEndOfTheRingOnly) {
  for (int i = 0; i < 60; ++i) m_.submit(c_, nop());
  m_.run();
  const auto stray = nop();
  const auto behind = c_.ring + 64 * std::uint64_t{spec::kDescriptorSize};
  std::ranges::copy(stray, m_.host(behind));
  for (int i = 0; i < 8; ++i) m_.push(c_, nop());
  m_.doorbell(5, 68);
  m_.run();
  EXPECT_EQ(m_.read_index(c_), 68u);
  EXPECT_EQ(m_.state(c_), cxtv::CXTV_RUN);
  EXPECT_TRUE(std::ranges::equal(stray, std::span(m_.host(behind), stray.size())));
}

TEST_F(RingTest, AFullRingIsProcessed) {
  for (int i = 0; i < 64; ++i) m_.push(c_, nop());
  m_.doorbell(5, 64);
  m_.run();
  EXPECT_EQ(m_.read_index(c_), 64u);
  EXPECT_EQ(m_.state(c_), cxtv::CXTV_RUN);
  for (std::uint64_t i = 0; i < 64; ++i) {
    EXPECT_EQ(m_.at<hdr>(m_.slot(c_, i)).get(hdr::vl), 0u) << i;
  }
}

// 5.3 step 9b
TEST_F(RingTest, ReadIndexDoesNotPassADescriptorThatIsBeingExecuted) {
  constexpr std::uint64_t kSize = 4u << 20;
  auto d = copy(m_.allocate(kSize), m_.allocate(kSize), kSize);
  const auto block = m_.attach_completion(d);
  m_.submit(c_, nop());
  m_.submit(c_, d);
  m_.step();
  EXPECT_EQ(m_.signal(block), 1u);
  EXPECT_EQ(m_.read_index(c_), 1u);
  m_.run();
  EXPECT_EQ(m_.read_index(c_), 2u);
}

// D-109 D-124
TEST_F(RingTest, NothingAtOrBeyondWriteIndexIsProcessed) {
  const auto d = nop();
  std::copy(d.begin(), d.end(), m_.host(m_.slot(c_, 1)));
  m_.submit(c_, nop());
  m_.run();
  EXPECT_EQ(m_.read_index(c_), 1u);
  EXPECT_TRUE(m_.valid(c_, 1));
  // Descriptors not yet published may change.
  const auto to = m_.allocate(8);
  const std::uint64_t value = 77;
  m_.submit(c_, write_immediate(to, std::as_bytes(std::span(&value, 1))));
  m_.run();
  EXPECT_EQ(m_.load64(to), 77u);
}

// D-125
TEST_F(RingTest, ProcessingHaltsAtAnInvalidDescriptorAndResumesWhenItBecomesValid) {
  auto late = nop();
  header(late).set(hdr::vl, 0);
  const auto index = m_.push(c_, late);
  m_.push(c_, nop());
  m_.doorbell(5, 2);
  m_.run();
  EXPECT_EQ(m_.read_index(c_), 0u);
  EXPECT_EQ(m_.records(), 0u);
  m_.at<hdr>(m_.slot(c_, index)).set(hdr::vl, 1);
  m_.advance(std::chrono::milliseconds(10));
  m_.run();
  EXPECT_EQ(m_.read_index(c_), 2u);
}

// D-126, SDXI 5.4: "may prefetch any number of descriptors ... up to ... Write_Index"
TEST_F(RingTest, DescriptorsThatLieTogetherAreTakenAsFarAsTheyAreValid) {
  constexpr unsigned kAll = 60, kLate = 20;
  const auto counter = m_.allocate(8, 8);
  m_.store64(counter, 0);
  const auto add = atomic(spec::atomic_subtype::DSC_ATM_UADD, counter, 8, 1);
  for (unsigned i = 0; i < kAll; ++i) {
    auto d = add;
    header(d).set(hdr::vl, i != kLate);
    m_.push(c_, d);
  }
  m_.doorbell(5, kAll);
  m_.run();
  EXPECT_EQ(m_.load64(counter), kLate);
  EXPECT_EQ(m_.read_index(c_), kLate);
  for (unsigned i = kLate + 1; i < kAll; ++i) EXPECT_TRUE(m_.valid(c_, i));
  // The producer still owns a descriptor without its valid bit, and may write anything to it.
  auto late = atomic(spec::atomic_subtype::DSC_ATM_UADD, counter, 8, 1000);
  std::copy(late.begin(), late.end(), m_.host(m_.slot(c_, kLate)));
  m_.doorbell(5, kAll);
  m_.run();
  EXPECT_EQ(m_.load64(counter), kAll - 1 + 1000);
  EXPECT_EQ(m_.read_index(c_), kAll);
}

// A slot may stay reserved forever, so polling it must cost nothing in the long run.
TEST_F(RingTest, WaitingForAValidBitBacksOff) {
  auto late = nop();
  header(late).set(hdr::vl, 0);
  const auto index = m_.push(c_, late);
  m_.doorbell(5, 1);
  m_.run();
  const auto begin = m_.now();
  unsigned looks = 0;
  for (; m_.now() - begin < std::chrono::seconds(10) && looks < 1000; ++looks) {
    const auto next = m_.step();
    ASSERT_GT(next, m_.now());
    ASSERT_NE(next, util::kNever);
    // The poll interval is at most the time that the slot has already been missing.
    ASSERT_LE(next - m_.now(), m_.now() - begin + std::chrono::microseconds(2));
    m_.advance(next - m_.now());
  }
  EXPECT_LT(looks, 200u);
  m_.at<hdr>(m_.slot(c_, index)).set(hdr::vl, 1);
  m_.advance(m_.device->options().valid_poll_max);
  m_.step();
  EXPECT_EQ(m_.read_index(c_), 1u);
}

// D-125 D-129: the doorbell of the overtaken producer runs its descriptor immediately.
TEST_F(RingTest, ASmallerDoorbellOfASlowerProducerIsNoticedWhileAValidBitIsMissing) {
  auto late = nop();
  header(late).set(hdr::vl, 0);
  const auto index = m_.push(c_, late);
  m_.push(c_, nop());
  m_.doorbell(5, 2);
  m_.run();
  m_.at<hdr>(m_.slot(c_, index)).set(hdr::vl, 1);
  m_.doorbell(5, 1);
  m_.step();
  EXPECT_EQ(m_.read_index(c_), 2u);
}

// D-129
TEST_F(RingTest, DoorbellsThatDoNotRiseExecuteNothingTwice) {
  const auto at = m_.allocate(8);
  for (int i = 0; i < 3; ++i) m_.push(c_, atomic(spec::atomic_subtype::DSC_ATM_UADD, at, 8, 1));
  for (const std::uint64_t value : {3, 1, 2, 3, 0}) m_.doorbell(5, value), m_.run();
  EXPECT_EQ(m_.load64(at), 3u);
  EXPECT_EQ(m_.read_index(c_), 3u);
}

// D-130
TEST_F(RingTest, ADoorbellAboveReadIndexLeadsToExamination) {
  m_.push(c_, nop());
  m_.doorbell(5, 1);
  m_.run();
  EXPECT_EQ(m_.read_index(c_), 1u);
}

TEST_F(RingTest, ADoorbellAboveWriteIndexExecutesWhatWriteIndexSays) {
  m_.push(c_, nop());
  m_.doorbell(5, 1000);
  m_.run();
  EXPECT_EQ(m_.read_index(c_), 1u);
  EXPECT_EQ(m_.records(), 0u);
}

// A hostile producer rewrites its ring: the device executes its copy of the descriptor.
TEST_F(RingTest, ADescriptorIsCopiedOnce) {
  FunctionGroup group;
  Machine m(group, {}, nullptr, Machine::Memory::kTraced);
  m.activate();
  auto& c = m.start_context(1);
  const auto to = m.allocate(64), wrong = m.allocate(64);
  const std::uint64_t value = 9;
  m.trace.on_write = [&](Iova at) {
    // The producer rewrites the slot as soon as vl is cleared.
    if (at == m.slot(c, 0)) m.store64(at + 16, wrong);
  };
  m.submit(c, write_immediate(to, std::as_bytes(std::span(&value, 1))));
  m.run();
  EXPECT_EQ(m.load64(to), 9u);
  EXPECT_EQ(m.load64(wrong), 0u);
}

// D-159
TEST_F(RingTest, ContextsShareTheFunctionFairly) {
  const auto size = 4u << 20;
  std::vector<Machine::Context> contexts;
  const auto from = m_.allocate(size), to = m_.allocate(size);
  for (ContextNumber i = 0; i < 8; ++i) {
    contexts.push_back(m_.start_context(20 + i, 1024));
    // Half of the contexts have large copies, half have small ones.
    for (int k = 0; k < 512; ++k) m_.push(contexts[i], copy(from, to, i % 2 == 0 ? size : 3072));
  }
  for (const auto& c : contexts) m_.doorbell(c.number, 512);
  for (int i = 0; i < 48; ++i) m_.step();
  std::uint64_t small_min = ~0ull, small_max = 0;
  for (std::size_t i = 1; i < 8; i += 2) {
    small_min = std::min(small_min, m_.read_index(contexts[i]));
    small_max = std::max(small_max, m_.read_index(contexts[i]));
  }
  // Each of 8 contexts has done 6 MiB of work: for small copies that is about 6 MiB / 4 KiB
  // descriptors.
  EXPECT_GE(small_min, 512u);
  EXPECT_EQ(small_min, small_max);
  EXPECT_LE(m_.read_index(contexts[0]), 3u);
}

// D-160
TEST_F(RingTest, AFailingContextDoesNotDisturbAnother) {
  auto& other = m_.start_context(6);
  m_.submit(c_, copy(0x1000, 0x2000, 8));
  auto d = nop();
  const auto block = m_.attach_completion(d);
  m_.submit(other, d);
  m_.run();
  EXPECT_EQ(m_.state(c_), cxtv::CXTV_ERR_FN);
  EXPECT_EQ(m_.state(other), cxtv::CXTV_RUN);
  EXPECT_EQ(m_.signal(block), 0u);
}

}  // namespace
}  // namespace softhca::sdxi::test
