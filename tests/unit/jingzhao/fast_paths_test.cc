// The fast paths of CQs (JingZhao 3.2.5, 3.3.1) and of the ICM cache do what their slow paths do,
// or nothing. Each test has two objects alike, and takes only the slow path with one of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <vector>

#include "jingzhao/icm_cache.h"
#include "jingzhao/icm_host.h"
#include "jingzhao/owned_ring.h"
#include "spec/jingzhao/context.h"

namespace softhca::jingzhao::test {
namespace {

using spec::jingzhao::cqe;

constexpr unsigned kRounds = 20'000;

// IcmCache ---------------------------------------------------------------------------------------

/// A user of a cache that keeps slot and load of each entry, as CompletionQueues does.
struct CacheUser {
  struct Known {
    std::uint32_t slot = 0;
    std::uint64_t brought = IcmCache::kNever;
  };
  static constexpr std::uint32_t kEntries = 8;

  explicit CacheUser(Icm& icm) : cache({.icm = &icm, .base = 0, .entry_size = 64}, 4, nullptr) {}
  auto counters() const {
    const auto& all = cache.counters();
    return std::array{all.hits, all.misses, all.evictions, all.write_backs, all.lost};
  }
  void touch(std::uint32_t index) {
    auto& [slot, brought] = known[index];
    brought = cache.touch(index, slot);
  }

  IcmCache cache;
  std::array<Known, kEntries> known;
};

TEST(JingzhaoFastPaths, TouchFastDoesWhatTouchDoesOrNothing) {
  std::vector<std::byte> memory(4096);
  pcie::DmaSpace dma;
  ASSERT_TRUE(dma.map(0x100000, memory.size(), memory.data(), pcie::DmaAccess::kReadWrite));
  Icm icm(dma);
  icm.map(0, 0x100000, 1);
  CacheUser both(icm), slow(icm);
  std::mt19937 random(128);
  unsigned fast = 0;
  for (unsigned round = 0; round != kRounds; ++round) {
    // Most of the time, the entries that fit.
    const auto index =
        static_cast<std::uint32_t>(random() % (round % 64 < 48 ? 4 : CacheUser::kEntries));
    if (random() % 64 == 0) {
      const std::array<Icm::Range, 1> ranges{{{.begin = index * 64, .end = index * 64 + 1}}};
      for (auto* user : {&both, &slow}) user->cache.drop(ranges);
    }
    const auto [slot, brought] = both.known[index];
    const auto before = both.counters();
    if (brought != 0 && both.cache.touch_fast(slot, brought)) {
      ++fast;
    } else {
      ASSERT_EQ(both.counters(), before) << round;
      both.touch(index);
    }
    slow.touch(index);
    ASSERT_EQ(both.known[index].brought, slow.known[index].brought) << round;
    ASSERT_EQ(both.counters(), slow.counters()) << round;
  }
  EXPECT_GT(fast, kRounds / 4);
  EXPECT_LT(fast, kRounds);
}

// QueueMemory and OwnedRing ----------------------------------------------------------------------

/// Two pieces of memory with the same bytes.
class TwoMemories {
 public:
  static constexpr std::size_t kSize = 4096;
  static constexpr std::array<pcie::Iova, 2> kAt{0x10000, 0x20000};

  TwoMemories() { map(); }
  void map() {
    for (const auto which : {0, 1}) {
      EXPECT_TRUE(dma.map(kAt[which], kSize, bytes[which].data(), pcie::DmaAccess::kReadWrite));
    }
    // A new mapping alone does not end cached translations.
    dma.set_bus_master(false);
    dma.set_bus_master(true);
  }
  void unmap() { dma.unmap_all(); }

  pcie::DmaSpace dma;
  rdma::KeyTable keys{dma, rdma::KeyShape(8, 24)};
  std::array<std::vector<std::byte>, 2> bytes{std::vector<std::byte>(kSize),
                                              std::vector<std::byte>(kSize)};
};

TEST(JingzhaoFastPaths, AtFastGivesWhatAtGivesOrNothing) {
  TwoMemories host;
  QueueMemory memory(host.keys, TwoMemories::kAt[0], TwoMemories::kSize);
  std::mt19937 random(331);
  bool mapped = true;
  unsigned fast = 0;
  for (unsigned round = 0; round != kRounds; ++round) {
    if (random() % 8 == 0) {
      mapped ? host.unmap() : host.map();
      mapped = !mapped;
      EXPECT_EQ(memory.at_fast(0, 1), nullptr) << "the translation is stale";
    }
    const auto offset = random() % TwoMemories::kSize;
    const auto length = 1 + random() % (TwoMemories::kSize - offset);
    const auto* const quick = memory.at_fast(offset, length);
    const auto* const full = memory.at(offset, length);
    ASSERT_EQ(full, mapped ? host.bytes[0].data() + offset : nullptr) << round;
    if (quick != nullptr) {
      ++fast;
      ASSERT_EQ(quick, full) << round;
    }
    ASSERT_EQ(memory.at_fast(offset, length), full) << "at() has refreshed the translation";
  }
  EXPECT_GT(fast, kRounds / 4);
}

TEST(JingzhaoFastPaths, WriteFastOfARingDoesWhatWriteDoesOrNothing) {
  TwoMemories host;
  constexpr unsigned kLogCount = 3;
  std::array<OwnedRing, 2> rings;
  for (const auto which : {0, 1}) {
    rings[which] = OwnedRing(QueueMemory(host.keys, TwoMemories::kAt[which], TwoMemories::kSize),
                             kLogCount, 0);
  }
  std::mt19937 random(3311);
  const auto return_entry = [&](std::uint32_t counter) {
    const auto place = (counter & ((1u << kLogCount) - 1)) * OwnedRing::kEntry;
    for (auto& bytes : host.bytes) {
      util::MutableView<cqe>(std::span(bytes).subspan(place, cqe::kSize))
          .set(cqe::owner, static_cast<std::uint32_t>(spec::jingzhao::owner::HW));
    }
  };
  for (std::uint32_t i = 0; i != 1u << kLogCount; ++i) return_entry(i);
  std::uint32_t returned = 0;
  bool mapped = true;
  unsigned fast = 0;
  for (unsigned round = 0; round != kRounds; ++round) {
    if (random() % 64 == 0) {
      mapped ? host.unmap() : host.map();
      mapped = !mapped;
    }
    while (returned != rings[1].producer() && random() % 3 != 0) return_entry(returned++);
    const auto fill = [&, mark = random()](OwnedRing::View entry) {
      entry.set(cqe::wqe, static_cast<std::uint32_t>(mark));
    };
    auto written = OwnedRing::Written::kYes;
    const auto before = std::pair(rings[0].producer(), host.bytes[0]);
    if (rings[0].write_fast(fill)) {
      ++fast;
    } else {
      ASSERT_EQ(std::pair(rings[0].producer(), host.bytes[0]), before) << round;
      written = rings[0].write(fill);
    }
    ASSERT_EQ(written, rings[1].write(fill)) << round;
    ASSERT_EQ(rings[0].producer(), rings[1].producer()) << round;
    ASSERT_EQ(host.bytes[0], host.bytes[1]) << round;
  }
  EXPECT_GT(fast, kRounds / 4);
}

// CompletionQueues -------------------------------------------------------------------------------

/// CQs 0 and 1 are alike: the first is written by its Place, and by number only if that does not
/// write.
class JingzhaoFastCqs : public JingzhaoIcm {
 protected:
  static constexpr unsigned kLogCount = 3;

  void make_cqs() {
    h.init();
    for (std::uint32_t cqn = 0; cqn != 2; ++cqn) {
      rings[cqn] = h.host.allocate(0x1000).value();
      // MTT entry `cqn` has the ring's page.
      h.clear_mailbox();
      h.put64(0x18, cqn);
      h.put64(0x38, rings[cqn].iova);
      ASSERT_EQ(h.with_mailbox(command_opcode::WRITE_MTT, 1), hcr_status::OK);
      util::Struct<mpt_entry> region;
      region.set(mpt_entry::local_write, 1);
      region.set(mpt_entry::key, cqn);
      region.set(mpt_entry::start, 0x1000);
      region.set(mpt_entry::length, 0x1000);
      region.set(mpt_entry::mtt_seg, cqn);
      h.put(region.bytes());
      ASSERT_EQ(h.with_mailbox(command_opcode::SW2HW_MPT, cqn), hcr_status::OK);
      util::Struct<Context> context;
      context.set(Context::logsize, kLogCount);
      context.set(Context::lkey, cqn);
      h.put(context.bytes());
      ASSERT_EQ(h.with_mailbox(command_opcode::SW2HW_CQ, cqn), hcr_status::OK);
    }
    for (std::uint32_t i = 0; i != 1u << kLogCount; ++i) return_entry(i);
  }
  void return_entry(std::uint32_t counter) {
    const auto place = (counter & ((1u << kLogCount) - 1)) * OwnedRing::kEntry;
    for (auto& ring : rings) {
      util::MutableView<cqe>(ring.bytes.subspan(place, cqe::kSize))
          .set(cqe::owner, static_cast<std::uint32_t>(spec::jingzhao::owner::HW));
    }
  }
  CompletionQueues& cqs() { return *h.device.objects().completion_queues; }
  /// The CQ as software and `softhca inspect` see it.
  auto state_of(std::uint32_t cqn) {
    const auto shown = *cqs().show(Cqn(cqn));
    return std::tuple(shown.producer, shown.armed, shown.failed,
                      std::vector(rings[cqn].bytes.begin(), rings[cqn].bytes.end()));
  }

  std::array<driver::DmaRegion, 2> rings;

 private:
  using Context = spec::jingzhao::cq_context;
};

TEST_F(JingzhaoFastCqs, WriteFastDoesWhatWriteDoesOrNothing) {
  make_cqs();
  const auto place = cqs().place(Cqn(0));
  std::mt19937 random(325);
  std::uint32_t returned = 0;
  unsigned fast = 0, armed = 0;
  for (unsigned round = 0; round != kRounds; ++round) {
    // The last entry is always returned before the ring is full, which would end the CQ.
    const auto producer = cqs().show(Cqn(1))->producer;
    while (returned != producer && (producer - returned >= 7 || random() % 3 != 0)) {
      return_entry(returned++);
    }
    // It stays armed if all entries are returned.
    if (random() % 16 == 0) {
      for (const std::uint32_t cqn : {0, 1}) cqs().arm(Cqn(cqn));
      armed += cqs().show(Cqn(1))->armed;
    }
    const auto fill = [&, mark = random()](OwnedRing::View entry) {
      entry.set(cqe::wqe, static_cast<std::uint32_t>(mark));
    };
    const auto before = state_of(0);
    if (place.write_fast(fill)) {
      ++fast;
    } else {
      ASSERT_EQ(state_of(0), before) << round;
      ASSERT_TRUE(cqs().write(Cqn(0), fill)) << round;
    }
    ASSERT_TRUE(cqs().write(Cqn(1), fill)) << round;
    ASSERT_EQ(state_of(0), state_of(1)) << round;
  }
  EXPECT_GT(fast, kRounds / 4);
  EXPECT_GT(armed, kRounds / 256);
  // A full ring ends both.
  for (unsigned i = 0; i != 8; ++i) {
    const auto fill = [](OwnedRing::View) {};
    const bool written = place.write_fast(fill) || cqs().write(Cqn(0), fill);
    ASSERT_EQ(written, cqs().write(Cqn(1), fill)) << i;
  }
  EXPECT_FALSE(place.write_fast([](OwnedRing::View) {}));
  EXPECT_EQ(state_of(0), state_of(1));
  EXPECT_TRUE(cqs().show(Cqn(0))->failed);
}

}  // namespace
}  // namespace softhca::jingzhao::test
