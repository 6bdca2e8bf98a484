// Software's duties for rings, completion blocks and the error log (the rows W-* of docs/sdxi.md):
// the accesses of src/driver/sdxi to the device are recorded.
#include <gmock/gmock.h>

#include <numeric>
#include <set>
#include <thread>

#include "sdxi/watched_driver.h"

namespace softhca::driver::sdxi::test {
namespace {

using spec::cxtv;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class DriverUseTest : public WatchedDriverTest {
 protected:
  DriverUseTest() {
    bring_up();
    context_ = make_context(16);
  }
  Structures now() { return *structures(context_->number()); }
  void expect_no_register_is_read() {
    const auto memory = DmaBuffer::allocate(host_, 128);
    host_.accesses.clear();
    for (int i = 0; i < 100; ++i) {
      const auto done = context_->copy({memory->iova()}, {memory->iova(64)}, 64);
      ASSERT_TRUE(done);
      ASSERT_TRUE(context_->wait(*done));
    }
    const auto reads =
        host_.select([](const Access& a) { return !a.write && a.bar == kRegisters; });
    EXPECT_TRUE(reads.empty()) << reads.size() << ", the first at " << reads.front().at;
  }

  std::unique_ptr<Context> context_;
};

// W-03
TEST_F(DriverUseTest, ARingHasFrom1ToTheFunctionsLimitAndIsNeverOverfilled) {
  const auto limit = function_->capabilities().max_ring_entries;
  EXPECT_FALSE(function_->make_context(0));
  EXPECT_FALSE(function_->make_context(static_cast<std::uint32_t>(limit + 1)));
  host_.paused = true;
  const std::array three{Descriptor::nop(), Descriptor::nop(), Descriptor::nop()};
  int accepted = 0;
  for (int i = 0; i < 10; ++i) accepted += context_->enqueue(three) ? 1 : 0;
  EXPECT_EQ(accepted, 5);
  EXPECT_EQ(now().write_index, 15u);
  const std::array one{Descriptor::nop()};
  EXPECT_TRUE(context_->enqueue(one));
  EXPECT_FALSE(context_->enqueue(one)) << "16 of 16";
  EXPECT_EQ(now().write_index, 16u);
  host_.paused = false;
  host_.progress();
  EXPECT_TRUE(context_->enqueue(three));
}

// SDXI 5.6: only se differs, and the function accepts it.
TEST_F(DriverUseTest, ASequentialDescriptorHasSe) {
  const auto memory = DmaBuffer::allocate(host_, 128);
  const auto plain = Descriptor::copy({memory->iova()}, {memory->iova(64)}, 64);
  auto sequential = plain;
  sequential.sequential();
  std::array<std::byte, spec::kDescriptorSize> expected{};
  std::ranges::copy(plain.bytes(), expected.begin());
  util::MutableView<spec::dsc_header>(expected).set(spec::dsc_header::se, 1);
  EXPECT_TRUE(std::ranges::equal(sequential.bytes(), expected));
  const auto done = context_->submit(std::array{sequential});
  ASSERT_TRUE(done);
  EXPECT_TRUE(context_->wait(*done));
}

// W-12
TEST_F(DriverUseTest, ValidDescriptorsThatWerePublishedAreNotModified) {
  host_.paused = true;
  const std::array three{Descriptor::nop(), Descriptor::nop(), Descriptor::nop()};
  std::vector<RawDescriptor> published;
  for (int i = 0; i < 8; ++i) {
    (void)context_->enqueue(three);  // the ring has no room for the last ones
    const auto s = now();
    for (std::size_t k = 0; k < published.size(); ++k) {
      EXPECT_TRUE(std::ranges::equal(descriptor(s, k).bytes(), published[k].bytes()));
    }
    while (published.size() < s.write_index) published.push_back(descriptor(s, published.size()));
  }
  EXPECT_EQ(published.size(), 15u);
  host_.paused = false;
}

// W-13: a consumer in another thread never finds a valid bit before the rest of the descriptor.
TEST(DriverRingTest, ADescriptorIsWholeWhenItsValidBitIsSet) {
  constexpr std::uint64_t kCount = 50000, kEntries = 64;
  std::vector<std::byte> slots(kEntries * 64);
  alignas(8) std::array<std::byte, 8> read{}, write{};
  const Ring ring(slots, read.data(), write.data());
  std::thread producer([&] {
    for (std::uint64_t i = 0; i < kCount; i += 2) {
      std::array<Descriptor, 2> two;
      for (std::uint64_t k = 0; k < 2; ++k) {
        std::array<std::byte, 32> data;
        for (std::size_t at = 0; at < data.size(); at += 8) {
          util::store_le64(data.data() + at, i + k + 1);
        }
        two[k] = Descriptor::write({i + k + 1}, data);
      }
      while (!ring.enqueue(two)) std::this_thread::yield();
    }
  });
  std::uint64_t torn = 0;
  for (std::uint64_t index = 0; index < kCount; ++index) {
    auto* slot = &slots[index % kEntries * 64];
    auto* head = reinterpret_cast<std::uint64_t*>(slot);
    while ((__atomic_load_n(head, __ATOMIC_ACQUIRE) & 1) == 0) std::this_thread::yield();
    for (std::size_t at = 16; at < 56; at += 8) {
      if (util::load_le64(slot + at) != index + 1) ++torn;
    }
    __atomic_fetch_and(head, ~std::uint64_t{1}, __ATOMIC_RELEASE);
    __atomic_store_n(reinterpret_cast<std::uint64_t*>(read.data()), index + 1, __ATOMIC_RELEASE);
  }
  producer.join();
  EXPECT_EQ(torn, 0u);
}

// W-15, W-30
TEST_F(DriverUseTest, EveryAdvanceOfWriteIndexIsFollowedByADoorbellOf64Bits) {
  const auto from = host_.accesses.size();
  const std::array two{Descriptor::nop(), Descriptor::nop()};
  for (std::uint64_t i = 1; i <= 20; ++i) {
    ASSERT_TRUE(context_->enqueue(two));
    const auto& last = host_.accesses.back();
    EXPECT_TRUE(last.write);
    EXPECT_EQ(last.bar, kDoorbells);
    EXPECT_EQ(last.at, context_->number() * function_->capabilities().doorbell_stride);
    EXPECT_EQ(last.value, now().write_index);
    host_.progress();
  }
  EXPECT_EQ(host_.accesses.size(), from + 20);
  const auto narrow =
      host_.select([](const Access& a) { return a.bar == kDoorbells && a.size != 8; });
  EXPECT_TRUE(narrow.empty());
}

// W-17, W-18
TEST_F(DriverUseTest, InSimpleModeEverySubmissionHasItsOwnBlockWithSignal1) {
  host_.paused = true;
  std::set<pcie::Iova> blocks;
  watch(context_->number(), [&](const RawDescriptor& d) {
    const auto footer = d.get(spec::dsc_generic::footer);
    ASSERT_EQ(footer.get(spec::dsc_footer::np), 0u);
    EXPECT_EQ(header(d).get(spec::dsc_header::csr), 1u);
    const auto at = spec::address(footer, spec::dsc_footer::csb_ptr);
    EXPECT_TRUE(blocks.insert(at).second);
    const auto block = load<spec::cst_blk>(at);
    EXPECT_EQ(block.get(spec::cst_blk::signal), 1u);
    EXPECT_EQ(block.get(spec::cst_blk::er), 0u);
  });
  const std::array one{Descriptor::nop()};
  std::vector<Completion> pending;
  for (int i = 0; i < 16; ++i) {
    const auto done = context_->submit(one);
    ASSERT_TRUE(done);
    EXPECT_FALSE(context_->poll(*done));
    pending.push_back(*done);
  }
  EXPECT_EQ(blocks.size(), 16u);
  host_.paused = false;
  for (const auto& completion : pending) EXPECT_TRUE(context_->wait(completion));
  for (const auto at : blocks) EXPECT_EQ(load<spec::cst_blk>(at).get(spec::cst_blk::signal), 0u);
}

// W-18
TEST_F(DriverUseTest, InAtomicModeDescriptorsShareABlock) {
  const auto block = DmaBuffer::allocate(host_, spec::cst_blk::kSize);
  util::store_le64(block->bytes().data(), 3);
  std::array three{Descriptor::nop(), Descriptor::nop(), Descriptor::nop()};
  for (auto& d : three) {
    d.count_down_at(block->iova());
    RawDescriptor raw;
    std::ranges::copy(d.bytes(), raw.bytes().begin());
    EXPECT_EQ(header(raw).get(spec::dsc_header::csr), 0u);
  }
  ASSERT_TRUE(context_->enqueue(std::span(three).first(2)));
  host_.progress();
  EXPECT_EQ(util::load_le64(block->bytes().data()), 1u);
  ASSERT_TRUE(context_->enqueue(std::span(three).last(1)));
  host_.progress();
  EXPECT_EQ(util::load_le64(block->bytes().data()), 0u);
}

// W-20
TEST_F(DriverUseTest, NoSourceIsDeclaredToBeAllZero) {
  int repeats = 0;
  using dsc = spec::dsc_dmab_repcopy;
  watch(context_->number(), [&](const RawDescriptor& d) {
    if (header(d).get(spec::dsc_header::subtype) !=
        static_cast<std::uint32_t>(spec::dma_base_subtype::DSC_DMAB_REPCOPY)) {
      return;
    }
    EXPECT_EQ(util::View<dsc>(d.bytes()).get(dsc::az), 0u);
    ++repeats;
  });
  const auto to = DmaBuffer::allocate(host_, 16384);
  for (const auto value : {std::byte{0}, std::byte{0x5a}, std::byte{0}}) {
    const auto done = context_->fill({to->iova()}, value, 16384);
    ASSERT_TRUE(done && context_->wait(*done));
    EXPECT_TRUE(std::ranges::all_of(to->bytes(), [=](std::byte b) { return b == value; }));
  }
  EXPECT_EQ(repeats, 3);
}

// W-21
TEST_F(DriverUseTest, ErrorInformationIsExaminedInCxtvErrFnOnly) {
  int looks = 0;
  host_.hook = [&](const Access& access) {
    if (access.write || !access.is(reg::MMIO_ERR_STS)) return;
    EXPECT_EQ(context_->state(), cxtv::CXTV_ERR_FN);
    ++looks;
  };
  const auto to = DmaBuffer::allocate(host_, 64);
  const auto done = context_->copy({to->iova()}, {0x1000}, 64);
  ASSERT_TRUE(done);
  EXPECT_FALSE(context_->wait(*done));
  EXPECT_EQ(looks, 1);
}

// W-21: a context that was stopped without an error reports none.
TEST_F(DriverUseTest, AContextThatWasOnlyStoppedShowsNoErrorOfOthers) {
  std::array stop{Descriptor::stop(context_->number(), context_->number(), false)};
  ASSERT_TRUE(function_->administer(stop));
  const auto from = host_.accesses.size();
  const std::array two{Descriptor::nop(), Descriptor::nop()};
  while (context_->enqueue(two)) {
  }
  EXPECT_FALSE(context_->submit(two));
  for (auto i = from; i < host_.accesses.size(); ++i) {
    EXPECT_FALSE(host_.accesses[i].is(reg::MMIO_ERR_STS));
  }
}

// W-23, W-31
TEST_F(DriverUseTest, TheErrorLogIsProcessedInTheOrderOfTheDocument) {
  const auto to = DmaBuffer::allocate(host_, 64);
  const auto done = context_->copy({to->iova()}, {0x1000}, 64);
  ASSERT_TRUE(done);
  while (context_->state() != cxtv::CXTV_ERR_FN) host_.progress();
  host_.accesses.clear();
  EXPECT_EQ(function_->take_errors().size(), 1u);
  std::vector<std::pair<bool, reg>> order;
  for (const auto& access : host_.accesses) {
    EXPECT_EQ(access.size, 8u);
    order.emplace_back(access.write, static_cast<reg>(access.at));
  }
  EXPECT_THAT(order,
              ElementsAre(std::pair(false, reg::MMIO_ERR_STS), std::pair(false, reg::MMIO_ERR_RD),
                          std::pair(true, reg::MMIO_ERR_STS), std::pair(false, reg::MMIO_ERR_WRT),
                          std::pair(true, reg::MMIO_ERR_RD)));
  EXPECT_EQ(host_.accesses.back().value, 1u);
}

// W-24: three times as many errors as the log can hold.
TEST_F(DriverUseTest, TheErrorLogIsConsumedInTime) {
  const auto to = DmaBuffer::allocate(host_, 64);
  for (int i = 0; i < 192; ++i) {
    const auto done = context_->copy({to->iova()}, {0x1000}, 64);
    ASSERT_TRUE(done);
    const auto waited = context_->wait(*done);
    ASSERT_FALSE(waited);
    ASSERT_THAT(waited.error().message, HasSubstr("ERRV_DSC_BUF"));
    ASSERT_THAT(waited.error().message, Not(ContainsRegex("ERRV_DSC_BUF.*ERRV_DSC_BUF")))
        << "its own record only: those before were read";
    ASSERT_TRUE(context_->recover());
  }
  bool lost = true;
  EXPECT_TRUE(function_->take_errors(&lost).empty());
  EXPECT_FALSE(lost);
}

// W-24: errors without a waiter, more than the log can hold.
TEST_F(DriverUseTest, RecordsWithoutAWaiterDoNotFillTheErrorLog) {
  const auto to = DmaBuffer::allocate(host_, 64);
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(context_->copy({to->iova()}, {0x1000}, 64));
    while (context_->state() != cxtv::CXTV_ERR_FN) host_.progress();
    ASSERT_TRUE(context_->recover());
  }
  bool lost = true;
  EXPECT_EQ(function_->take_errors(&lost).size(), 100u);
  EXPECT_FALSE(lost);
  expect_no_register_is_read();  // also at an old record's place: the log has wrapped
}

// Each register access of a guest traps, so the error-free path reads none.
TEST_F(DriverUseTest, WhileNothingFailsNoRegisterIsRead) { expect_no_register_is_read(); }

// SDXI 3.4: two callers wait, and each gets the error of its own descriptor.
TEST_F(DriverUseTest, AWaiterLeavesTheRecordsOfOthers) {
  auto other = make_context(16);
  const auto to = DmaBuffer::allocate(host_, 64);
  const auto mine = context_->copy({to->iova()}, {0x1000}, 64);
  const auto others = other->copy({to->iova()}, {0x2000}, 64);
  ASSERT_TRUE(mine && others);
  while (other->state() != cxtv::CXTV_ERR_FN || context_->state() != cxtv::CXTV_ERR_FN)
    host_.progress();
  const auto first = context_->wait(*mine);
  const auto second = other->wait(*others);
  ASSERT_FALSE(first || second);
  for (const auto& [waited, number] :
       {std::pair(&first, context_->number()), std::pair(&second, other->number())}) {
    EXPECT_THAT(waited->error().message, HasSubstr("ERRV_DSC_BUF"));
    EXPECT_THAT(waited->error().message, HasSubstr(fmt::format("context {}, descriptor", number)));
    EXPECT_THAT(waited->error().message, Not(ContainsRegex("ERRV_DSC_BUF.*ERRV_DSC_BUF")));
  }
}

// Descriptors that a recovered context will never complete end immediately, and their blocks become
// free.
TEST_F(DriverUseTest, RecoveryGivesUpWhatHasNotCompleted) {
  const auto to = DmaBuffer::allocate(host_, 64);
  for (int i = 0; i < 300; ++i) {  // more than the number of blocks
    const auto good = context_->submit(std::array{Descriptor::nop()});
    const auto failing = context_->copy({to->iova()}, {0x1000}, 64);
    const auto behind = context_->submit(std::array{Descriptor::nop()});
    ASSERT_TRUE(good && failing && behind) << i;
    EXPECT_FALSE(context_->wait(*failing));
    if (i % 2 == 0) {
      EXPECT_FALSE(context_->wait(*behind));
    }
    ASSERT_TRUE(context_->recover());
    EXPECT_TRUE(context_->wait(*good)) << "it had completed before";
    if (i % 2 == 0) continue;
    const auto before = host_.now();
    ASSERT_TRUE(context_->poll(*behind)) << "it has ended, or its wait would last";
    const auto waited = context_->wait(*behind);
    ASSERT_FALSE(waited);
    EXPECT_THAT(waited.error().message, HasSubstr("given up"));
    EXPECT_EQ(host_.now(), before);
    EXPECT_FALSE(context_->wait(*behind)) << "asked again, when others have the block";
  }
}

}  // namespace
}  // namespace softhca::driver::sdxi::test
