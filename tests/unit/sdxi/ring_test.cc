// SDXI 5: the descriptor ring, from doorbell to completion.
#include <gtest/gtest.h>

#include "sdxi/machine.h"

namespace softhca::sdxi::test {
namespace {

using reg = spec::mmio_register;
using ent = spec::errlog_hd_ent;
using spec::cxtv;
using hdr = spec::dsc_header;

class RingTest : public ::testing::Test {
 protected:
  RingTest() {
    m_.activate();
    c_ = m_.start_context(5);
  }
  /// Expects the parser to refuse the descriptor (SDXI 5.3 step 12).
  void expect_parse_error(const Descriptor& d, ContextNumber number = 5, unsigned err_class = 0) {
    const auto& c = m_.context(number);
    m_.set_state(c, cxtv::CXTV_STOP_SW);
    m_.store64(c.write_index, m_.read_index(c));
    m_.set_state(c, cxtv::CXTV_RUN);
    const auto records = m_.records();
    auto with_block = d;
    const auto block = m_.attach_completion(with_block);
    const auto index = m_.submit(c, with_block);
    const std::vector<std::byte> ring(m_.host(m_.slot(c, index)), m_.host(m_.slot(c, index)) + 64);
    m_.run();
    EXPECT_EQ(m_.state(c), cxtv::CXTV_ERR_FN);
    EXPECT_EQ(m_.read_index(c), index);
    EXPECT_EQ(0, std::memcmp(ring.data(), m_.host(m_.slot(c, index)), 64));
    EXPECT_EQ(m_.signal(block), 1u);
    EXPECT_FALSE(m_.er(block));
    ASSERT_EQ(m_.records(), records + 1);
    const auto r = m_.record(records);
    EXPECT_EQ(r.get(ent::step), 7u);
    EXPECT_EQ(r.get(ent::sub_step), 3u);
    EXPECT_EQ(r.get(ent::div), 1u);
    EXPECT_EQ(r.get(ent::dsc_index), index);
    EXPECT_EQ(r.get(ent::cxt_num), number);
    if (err_class != 0) {
      EXPECT_EQ(r.get(ent::err_class), err_class);
    }
  }
  void expect_ring_error(std::uint64_t write_index) {
    m_.store64(c_.write_index, write_index);
    m_.doorbell(5, write_index);
    m_.run();
    EXPECT_EQ(m_.state(c_), cxtv::CXTV_ERR_FN);
    ASSERT_EQ(m_.records(), 1u);
    EXPECT_EQ(m_.record(0).get(ent::step), 6u);
    EXPECT_EQ(m_.record(0).get(ent::err_class), 0x2350u);
  }
  FunctionGroup group_;
  Machine m_{group_};
  Machine::Context c_;
};

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
TEST_F(RingTest, ASmallerDoorbellOfASlowerProducerIsHeardWhileAValidBitIsMissing) {
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
      Machine m(group,
                {.atomics = cap ? AtomicSet::kFull : AtomicSet::kNone, .interrupt_group = cap});
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
  Machine m(group, {.atomics = AtomicSet::kMinimal});
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

// D-139 D-146 D-090: order of the writes on the bus.
TEST_F(RingTest, ValidIsClearedBeforeDataIsWrittenBeforeTheSignal) {
  FunctionGroup group;
  Machine m(group, {}, nullptr, Machine::Memory::kTraced);
  m.activate();
  auto& c = m.start_context(1);
  const auto from = m.allocate(100), to = m.allocate(100);
  auto d = copy(from, to, 100);
  const auto block = m.attach_completion(d);
  m.submit(c, d);
  m.run();
  const auto vl = m.trace.write_of(m.slot(c, 0));
  const auto data = m.trace.write_of(to);
  const auto signal = m.trace.write_of(block);
  EXPECT_GE(vl, 0);
  EXPECT_LT(vl, data);
  EXPECT_LT(data, signal);
  EXPECT_FALSE(m.valid(c, 0));
}

// D-146 D-149 D-142 D-104
TEST_F(RingTest, AnErrorsTracesAreWrittenInOrder) {
  FunctionGroup group;
  Machine m(group, {}, nullptr, Machine::Memory::kTraced);
  m.activate();
  auto& c = m.start_context(1);
  auto d = copy(0x1000, m.allocate(8), 8);
  const auto block = m.attach_completion(d);
  std::vector<std::string> order;
  m.trace.on_write = [&](Iova at) {
    if (at == block + 8) order.push_back("er");
    if (at == block) order.push_back("signal");
    if (at == c.sts + 8) order.push_back("read_index");
    if (at == c.sts) order.push_back("state " + std::to_string(static_cast<int>(m.state(c))));
  };
  m.submit(c, d);
  m.run();
  EXPECT_EQ(order, (std::vector<std::string>{"er", "signal", "state 6", "read_index", "state 15"}));
  EXPECT_EQ(m.records(), 1u);
  EXPECT_EQ(m.read_index(c), 1u);
}

// D-140 D-141
TEST_F(RingTest, ReadIndexFollowsEveryDescriptor) {
  for (std::uint64_t i = 0; i < 10; ++i) {
    m_.submit(c_, nop());
    m_.run();
    EXPECT_EQ(m_.read_index(c_), i + 1);
  }
}

// D-143
TEST_F(RingTest, AFencedDescriptorComesAfterAllEarlierOnes) {
  const auto size = 1u << 20;
  const auto a = m_.allocate(size), b = m_.allocate(size), c = m_.allocate(size);
  m_.fill(a, size, 5);
  m_.push(c_, copy(a, b, size));
  auto d = copy(b, c, size);
  header(d).set(hdr::fe, 1);
  m_.push(c_, d);
  m_.doorbell(5, 2);
  m_.run();
  EXPECT_TRUE(m_.equal(a, c, size));
}

// D-145
TEST_F(RingTest, SequentialWritesBecomeVisibleInOrder) {
  FunctionGroup group;
  Machine m(group, {}, nullptr, Machine::Memory::kTraced);
  m.activate();
  auto& c = m.start_context(1);
  const auto first = m.allocate(64), second = m.allocate(64);
  const std::uint64_t value = 1;
  m.push(c, write_immediate(first, std::as_bytes(std::span(&value, 1))));
  auto d = write_immediate(second, std::as_bytes(std::span(&value, 1)));
  header(d).set(hdr::se, 1);
  m.push(c, d);
  m.doorbell(1, 2);
  m.run();
  EXPECT_GE(m.trace.write_of(first), 0);
  EXPECT_LT(m.trace.write_of(first), m.trace.write_of(second));
}

// D-223
TEST_F(RingTest, AfterAnErrorTheFencedDescriptorIsNotExecuted) {
  m_.push(c_, copy(0x1000, 0x2000, 8));
  auto d = nop();
  header(d).set(hdr::fe, 1);
  m_.push(c_, d);
  m_.doorbell(5, 2);
  m_.run();
  EXPECT_EQ(m_.state(c_), cxtv::CXTV_ERR_FN);
  EXPECT_EQ(m_.read_index(c_), 1u);
  EXPECT_TRUE(m_.valid(c_, 1));
}

// D-158
TEST_F(RingTest, APendingBitStaysSetWhileTheVectorIsMasked) {
  const std::uint32_t masked = 1;
  m_.device->write_bar(0, Device::kMsixTable + 16 + 12, std::as_bytes(std::span(&masked, 1)));
  m_.submit(c_, interrupt(1));
  m_.run();
  EXPECT_EQ(m_.read(Device::kMsixPba), 2u);
  m_.submit(c_, nop());
  m_.run();
  EXPECT_EQ(m_.read(Device::kMsixPba), 2u);
  EXPECT_EQ(m_.interrupts(1), 0u);
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
