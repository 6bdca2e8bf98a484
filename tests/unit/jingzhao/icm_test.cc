// ICM: mappings by software, their order, and where contexts are stored (JingZhao 3.2.2, 3.2.3).
#include <gtest/gtest.h>

#include "jingzhao/icm_cache.h"
#include "jingzhao/icm_host.h"
#include "spec/infiniband/qp_states.h"
#include "spec/jingzhao/context.h"

namespace softhca::jingzhao::test {
namespace {

using enum hcr_status;
using spec::jingzhao::mpt_entry;

TEST(JingzhaoSmallIcm, TheLowerNumberedOfTwoChunksIsInTheHigherHalf) {
  RawHost h({.icm_cache = 1});
  h.put_init();
  ASSERT_EQ(h.with_mailbox(command_opcode::INIT_HCA, 0), OK);
  // Three one-page chunks for the MTT: entry 0 at 10h, 1 at 00h, 2 at 30h. The last page of host
  // memory is the first of the MTT.
  h.clear_mailbox();
  const std::size_t places[] = {0x10, 0x00, 0x30};
  for (std::uint64_t i = 0; i != 3; ++i) {
    h.put64(places[i], RawHost::kMtt + i * 0x1000);
    h.put64(places[i] + 8, (h.bus(RawHost::kMtt) + (2 - i) * 0x1000) | 1);
  }
  h.put64(0x20, 0xDEAD000);  // the unused low half of the last group
  h.put64(0x28, 0xDEAD001);
  ASSERT_EQ(h.with_mailbox(command_opcode::MAP_ICM, 3, 2), OK);
  for (std::uint64_t page = 0; page != 4; ++page) {
    h.clear_mailbox();
    h.put64(0x18, page % 3 * 512);
    h.put64(0x38, (page + 1) << 12);
    ASSERT_EQ(h.with_mailbox(command_opcode::WRITE_MTT, 1), OK);
  }
  // The entries that the chip evicted.
  const auto* mtt = h.icm.bytes.data() + (RawHost::kMtt - RawHost::kQpc);
  EXPECT_EQ(util::load_be64(mtt + 0x2000), 0x1000u) << "the first page of the MTT";
  EXPECT_EQ(util::load_be64(mtt + 0x1000), 0x2000u);
  EXPECT_EQ(util::load_be64(mtt), 0x3000u);
}

TEST_F(JingzhaoIcm, AContextWithoutIcmIsRefused) {
  h.put_init();
  ASSERT_EQ(h.with_mailbox(command_opcode::INIT_HCA, 0), OK);
  EXPECT_EQ(install_mpt(1), BAD_PARAM);
  h.clear_mailbox();
  h.put32(0x00, 1 << 18);
  EXPECT_EQ(h.with_mailbox(command_opcode::SW2HW_EQ, 0), BAD_PARAM);
  EXPECT_EQ(h.with_mailbox(command_opcode::SW2HW_CQ, 0), BAD_PARAM);
  EXPECT_EQ(h.with_mailbox(command_opcode::WRITE_MTT, 1), BAD_PARAM);
  ASSERT_EQ(h.map(2, RawHost::kMpt, h.bus(RawHost::kMpt), 1), OK);
  EXPECT_EQ(install_mpt(1), OK);
}

TEST_F(JingzhaoIcm, AQueuePairOfATypeThatThereIsNotIsRefused) {
  using spec::jingzhao::qp_context;
  h.init();
  h.clear_mailbox();
  h.put32(0x0c, 0);
  ASSERT_EQ(h.with_mailbox(command_opcode::SW2HW_CQ, 0), OK);
  for (const auto& [type, status] : {std::pair{2u, BAD_PARAM}, {4u, BAD_PARAM}, {0u, OK}}) {
    util::Struct<qp_context> context;
    context.set(qp_context::local_qpn, 5);
    context.set(qp_context::state, 1);
    context.set(qp_context::type, type);
    h.put(context.bytes());
    EXPECT_EQ(h.with_mailbox(command_opcode::RST2INIT_QPEE, 5), status) << type;
  }
}

TEST_F(JingzhaoIcm, APkeyIndexBeyondTheTableIsRefused) {
  using spec::jingzhao::qp_context;
  h.init();
  h.clear_mailbox();
  h.put32(0x0c, 0);
  ASSERT_EQ(h.with_mailbox(command_opcode::SW2HW_CQ, 0), OK);
  util::Struct<qp_context> context;
  context.set(qp_context::local_qpn, 5);
  const auto go = [&](std::uint32_t state, command_opcode opcode, std::uint32_t index) {
    context.set(qp_context::state, state);
    context.set(qp_context::pkey_index, index);
    h.put(context.bytes());
    return h.with_mailbox(opcode, 5);
  };
  for (const auto& [index, status] : {std::pair{2u, BAD_PARAM}, {127u, BAD_PARAM}, {1u, OK}}) {
    EXPECT_EQ(go(1, command_opcode::RST2INIT_QPEE, index), status) << index;
  }
  context.set(qp_context::opt_param_mask,
              spec::infiniband::QpAttributeSet({spec::infiniband::QpAttribute::kPkeyIndex}).bits());
  EXPECT_EQ(go(1, command_opcode::INIT2INIT_QPEE, 2), BAD_PARAM);
  EXPECT_EQ(go(1, command_opcode::INIT2INIT_QPEE, 0), OK);
}

TEST_F(JingzhaoIcm, EachGroupOfTablesHasItsOwnMappings) {
  h.put_init();
  ASSERT_EQ(h.with_mailbox(command_opcode::INIT_HCA, 0), OK);
  ASSERT_EQ(h.map(1, RawHost::kMpt, h.bus(RawHost::kMpt), 1), OK);
  EXPECT_EQ(install_mpt(1), BAD_PARAM) << "the page is one of the queue contexts";
}

TEST_F(JingzhaoIcm, MapAndUnmapRefuseWhatIsNoPage) {
  EXPECT_EQ(h.map(3, 0, 0, 1), BAD_PARAM) << "group";
  EXPECT_EQ(h.map(1, 0x800, 0, 1), BAD_PARAM) << "alignment";
  EXPECT_EQ(h.map(1, 0, 0, 0), BAD_PARAM) << "no pages";
  EXPECT_EQ(h.map(1, ~0xFFFull, 0x1000, 2), BAD_PARAM) << "wraps";
  h.clear_mailbox();
  EXPECT_EQ(h.with_mailbox(command_opcode::MAP_ICM, 0, 1), BAD_PARAM) << "no entries";
  EXPECT_EQ(h.with_mailbox(command_opcode::MAP_ICM, 257, 1), BAD_PARAM) << "more than a mailbox";
  EXPECT_EQ(h.unmap(3, 0, 1), BAD_PARAM);
  EXPECT_EQ(h.unmap(1, 0x10, 1), BAD_PARAM);
  EXPECT_EQ(h.unmap(1, 0x7000, 5), OK) << "nothing is mapped there";
}

TEST(JingzhaoSmallIcm, WriteMttTakesTheFirstOfFourEntriesFromTheHighestPlace) {
  RawHost h({.icm_cache = 1});
  h.init();
  h.clear_mailbox();
  h.put64(0x18, 4);  // mtt_start_index
  const std::size_t places[] = {0x38, 0x30, 0x28, 0x20, 0x58, 0x50};
  for (std::uint64_t i = 0; i != 6; ++i) h.put64(places[i], (i + 1) << 12);
  ASSERT_EQ(h.with_mailbox(command_opcode::WRITE_MTT, 6), OK);
  h.clear_mailbox();
  h.put64(0x18, 100);
  ASSERT_EQ(h.with_mailbox(command_opcode::WRITE_MTT, 1), OK) << "puts the others off the chip";
  const auto* mtt = h.icm.bytes.data() + (RawHost::kMtt - RawHost::kQpc);
  for (std::uint64_t i = 0; i != 6; ++i) {
    EXPECT_EQ(util::load_be64(mtt + 8 * (4 + i)), (i + 1) << 12) << i;
  }
}

TEST_F(JingzhaoIcm, WriteMttTakesAsManyEntriesAsAMailboxHas) {
  h.init();
  h.clear_mailbox();
  EXPECT_EQ(h.with_mailbox(command_opcode::WRITE_MTT, 0), BAD_PARAM);
  EXPECT_EQ(h.with_mailbox(command_opcode::WRITE_MTT, 509), BAD_PARAM);
  EXPECT_EQ(h.with_mailbox(command_opcode::WRITE_MTT, 508), OK);
}

// The cache loads eight entries at a time. The last load must not require ICM beyond the end of
// the table.
TEST_F(JingzhaoIcm, AnMttMayBeginAtAnyEntry) {
  for (const auto table : {RawHost::kMpt, RawHost::kMtt}) {
    ASSERT_EQ(h.map(2, table, h.bus(table), RawHost::kTablePages), OK);
  }
  h.put_init();
  h.put64(0x38, RawHost::kMtt + 4);
  EXPECT_EQ(h.with_mailbox(command_opcode::INIT_HCA, 0), BAD_PARAM) << "the half of an entry";
  h.put_init();
  h.put64(0x38, RawHost::kMtt + 8);
  ASSERT_EQ(h.with_mailbox(command_opcode::INIT_HCA, 0), OK);
  constexpr std::uint64_t kLast = RawHost::kTablePages * 512 - 2;
  for (const auto& [index, status] :
       {std::pair{std::uint64_t{0}, OK}, {kLast, OK}, {kLast + 1, BAD_PARAM}}) {
    h.clear_mailbox();
    h.put64(0x18, index);
    EXPECT_EQ(h.with_mailbox(command_opcode::WRITE_MTT, 1), status) << index;
  }
}

// The bound of docs/serve.md holds for any sequence of map and unmap.
class JingzhaoIcmChunks : public JingzhaoIcm {
 protected:
  static constexpr std::uint64_t kApart = 4 * Icm::kPage;
  /// Maps chunks of three pages in one command.
  hcr_status map_chunks(std::uint64_t first, std::uint32_t count) {
    h.clear_mailbox();
    for (std::uint32_t i = 0; i != count; ++i) {
      const auto at = (i ^ 1) * std::size_t{16};  // entry 0 of each pair is in the higher half
      h.put64(at, (first + i) * kApart);
      h.put64(at + 8, h.icm.iova | 3);
    }
    return h.with_mailbox(command_opcode::MAP_ICM, count, 1);
  }
  void fill(std::size_t count) {
    constexpr std::uint32_t kMost = 256;
    for (std::size_t i = 0; i < count; i += kMost) {
      ASSERT_EQ(map_chunks(i, static_cast<std::uint32_t>(std::min<std::size_t>(kMost, count - i))),
                OK);
    }
    ASSERT_EQ(icm().chunks(), count);
  }
  const Icm& icm() { return h.device.icm(IcmGroup::QUEUE_CONTEXTS); }
};

TEST_F(JingzhaoIcmChunks, UnmappingTheMiddleOfOneKeepsTheBound) {
  fill(Icm::kChunksMax);
  for (std::uint64_t i = 0; i != 8; ++i) {
    EXPECT_EQ(h.unmap(1, i * kApart + Icm::kPage, 1), BAD_PARAM);
  }
  EXPECT_EQ(icm().chunks(), Icm::kChunksMax);
  EXPECT_EQ(icm().pages(), 3 * Icm::kChunksMax);
  EXPECT_EQ(h.unmap(1, 0, 1), OK) << "the first page of one makes none";
  EXPECT_EQ(h.unmap(1, 5 * kApart, 3), OK);
  EXPECT_EQ(h.unmap(1, kApart + Icm::kPage, 1), OK) << "there is room for one";
  EXPECT_EQ(h.unmap(1, 2 * kApart + Icm::kPage, 1), BAD_PARAM);
  EXPECT_EQ(icm().chunks(), Icm::kChunksMax);
}

TEST_F(JingzhaoIcmChunks, UnmappingNoPagesDividesNothing) {
  fill(1);
  EXPECT_EQ(h.unmap(1, Icm::kPage, 0), OK);
  EXPECT_EQ(icm().chunks(), 1u);
}

TEST_F(JingzhaoIcmChunks, ACommandThatHasNoRoomMapsNothing) {
  fill(Icm::kChunksMax - 1);
  EXPECT_EQ(map_chunks(0, 256), OK) << "they replace others";
  EXPECT_EQ(map_chunks(Icm::kChunksMax - 2, 3), BAD_PARAM) << "one replaces, two are new";
  EXPECT_EQ(icm().chunks(), Icm::kChunksMax - 1);
  EXPECT_EQ(map_chunks(Icm::kChunksMax - 2, 2), OK);
  EXPECT_EQ(icm().chunks(), Icm::kChunksMax);
}

TEST_F(JingzhaoIcmChunks, ACommandIsLittleWorkHoweverManyThereAre) {
  fill(Icm::kChunksMax);
  for (const std::uint64_t first : {std::uint64_t{0}, std::uint64_t{Icm::kChunksMax}}) {
    const auto before = h.device.work_done();
    EXPECT_EQ(map_chunks(first, 256), first == 0 ? OK : BAD_PARAM);
    EXPECT_LT(h.device.work_done() - before, 150'000);
  }
}

TEST_F(JingzhaoIcmChunks, ReplacingManyLooksAtTheCachesOnce) {
  h.init();
  constexpr std::uint32_t kMany = 256;
  ASSERT_EQ(map_chunks(kMany, kMany), OK);
  const auto before = h.device.work_done();
  EXPECT_EQ(map_chunks(kMany, kMany), OK);
  EXPECT_LT(h.device.work_done() - before, 50'000);
}

TEST(JingzhaoSmallIcm, EntriesThatLeaveTheChipStandInTheHostsMemory) {
  RawHost h({.icm_cache = 1});
  h.init();
  for (std::uint32_t line = 0; line != 3; ++line) {
    h.clear_mailbox();
    h.put64(0x18, 8 * line);
    for (std::size_t i = 0; i != 8; ++i) {
      const auto place = 0x20 + i / 4 * 0x20 + (3 - i % 4) * 8;
      h.put64(place, std::uint64_t{8 * line + i + 1} << 12);
    }
    ASSERT_EQ(h.with_mailbox(command_opcode::WRITE_MTT, 8), OK);
  }
  // The first two lines were evicted and written back, in order.
  const auto* mtt = h.icm.bytes.data() + (RawHost::kMtt - RawHost::kQpc);
  for (std::uint64_t i = 0; i != 16; ++i) {
    EXPECT_EQ(util::load_be64(mtt + 8 * i), (i + 1) << 12) << i;
  }
  EXPECT_EQ(util::load_be64(mtt + 8 * 16), 0u) << "the third is still on chip";
}

// 3.2.3.1 says "page size". The device accepts bytes, which the author's driver passes, or log2
// minus 12.
TEST_F(JingzhaoIcm, APageSizeIsBytesOrTheirLogarithmAbove12) {
  h.init();
  const auto install = [&](std::uint32_t page_size, std::uint64_t length) {
    util::Struct<mpt_entry> entry;
    entry.set(mpt_entry::key, 1);
    entry.set(mpt_entry::page_size, page_size);
    entry.set(mpt_entry::length, length);
    h.put(entry.bytes());
    const auto status = h.with_mailbox(command_opcode::SW2HW_MPT, 1);
    (void)h.command(command_opcode::HW2SW_MPT, {.in_modifier = 1});
    return status;
  };
  // The longest region that is accepted has kMaxPages pages, and thereby shows the page size.
  constexpr std::uint64_t kPages = limits::kMaxPages;
  for (const auto& [page_size, log] : {std::pair{0u, 12u},
                                       {1u, 13u},
                                       {19u, 31u},
                                       {0x1000u, 12u},
                                       {0x2000u, 13u},
                                       {0x80000000u, 31u}}) {
    EXPECT_EQ(install(page_size, kPages << log), OK) << page_size;
    EXPECT_EQ(install(page_size, (kPages << log) + 1), BAD_PARAM) << page_size;
  }
  for (const auto page_size : {20u, 0x800u, 0xFFFu, 0x1001u, 0x3000u, 0xFFFFFFFFu}) {
    EXPECT_EQ(install(page_size, 1), BAD_PARAM) << page_size;
  }
}

TEST_F(JingzhaoIcm, AnMptEntryIsInstalledOnceUnderTheIndexOfItsKey) {
  h.init();
  put_mpt(0x41);  // index 1 of 64 entries, variant 1
  EXPECT_EQ(h.with_mailbox(command_opcode::SW2HW_MPT, 2), BAD_PARAM) << "another index";
  EXPECT_EQ(h.with_mailbox(command_opcode::SW2HW_MPT, 64), BAD_PARAM) << "beyond the table";
  EXPECT_EQ(h.with_mailbox(command_opcode::SW2HW_MPT, 1), OK);
  EXPECT_EQ(h.with_mailbox(command_opcode::SW2HW_MPT, 1), BAD_PARAM) << "is installed";
  EXPECT_EQ(h.command(command_opcode::HW2SW_MPT, {.in_modifier = 1}), OK);
  EXPECT_EQ(h.command(command_opcode::HW2SW_MPT, {.in_modifier = 1}), BAD_PARAM);
}

TEST_F(JingzhaoIcm, ARegionThatWrapsOrHasTooManyPagesIsRefused) {
  h.init();
  put_mpt(1);
  h.put64(0x10, ~0ull);
  EXPECT_EQ(h.with_mailbox(command_opcode::SW2HW_MPT, 1), BAD_PARAM);
  put_mpt(1);
  h.put64(0x18, (std::uint64_t{1} << 30) + 1);
  EXPECT_EQ(h.with_mailbox(command_opcode::SW2HW_MPT, 1), BAD_PARAM) << "2^18 pages and one";
  h.put32(0x04, 9);  // page size: 2 MiB
  EXPECT_EQ(h.with_mailbox(command_opcode::SW2HW_MPT, 1), OK);
}

TEST(IcmMap, MappingsReplaceAndCutEachOther) {
  std::vector<std::byte> memory(16 * 4096);
  pcie::DmaSpace dma;
  ASSERT_TRUE(dma.map(0x100000, memory.size(), memory.data(), pcie::DmaAccess::kReadWrite));
  Icm icm(dma);
  icm.map(0x10000, 0x100000, 8);
  icm.map(0x12000, 0x10A000, 2);
  EXPECT_EQ(icm.pages(), 8u);
  EXPECT_EQ(icm.chunks(), 3u);
  std::array<std::byte, 3 * 4096> out;
  memory[0x1FFF] = std::byte{1};
  memory[0xA000] = std::byte{2};
  memory[0x4000] = std::byte{3};
  ASSERT_TRUE(icm.read(0x11FFF, std::span(out).first(0x2002)));
  EXPECT_EQ(out[0], std::byte{1});
  EXPECT_EQ(out[1], std::byte{2});
  EXPECT_EQ(out[0x2001], std::byte{3});
  icm.unmap(0x11000, 1);
  EXPECT_FALSE(icm.read(0x10FFF, std::span(out).first(2)));
  EXPECT_TRUE(icm.mapped(0x12000, 0x6000));
  icm.unmap(0, 0x1000);
  EXPECT_EQ(icm.chunks(), 0u);
}

TEST(IcmMap, TheNumberOfChunksIsKnownBeforeTheyAreMapped) {
  constexpr std::uint64_t kPage = Icm::kPage;
  pcie::DmaSpace dma;
  Icm icm(dma);
  for (std::uint64_t i = 0; i != 8; ++i) icm.map(i * 16 * kPage, 0, 8);
  // Begin and number of pages of each mapping of a command.
  using Commands = std::vector<std::pair<std::uint64_t, std::uint64_t>>;
  for (const auto& command :
       {Commands{{200, 1}}, Commands{{2, 2}}, Commands{{2, 2}, {5, 1}}, Commands{{2, 2}, {3, 4}},
        Commands{{0, 8}}, Commands{{0, 40}}, Commands{{4, 40}, {2, 1}, {6, 2}},
        Commands{{0, 4}, {4, 4}}, Commands{{7, 10}, {0, 200}, {100, 1}}}) {
    std::vector<Icm::Range> ranges;
    for (const auto& [first, pages] : command) {
      ranges.push_back({.begin = first * kPage, .end = (first + pages) * kPage});
    }
    const auto expected = icm.chunks_after(ranges);
    Icm mapped = icm;
    for (const auto& [first, pages] : command) mapped.map(first * kPage, 0, pages);
    EXPECT_EQ(expected, mapped.chunks()) << command.front().first;
  }
}

TEST(IcmCacheTest, EntriesInSeveralRangesAreDropped) {
  std::vector<std::byte> memory(4096);
  pcie::DmaSpace dma;
  ASSERT_TRUE(dma.map(0x100000, memory.size(), memory.data(), pcie::DmaAccess::kReadWrite));
  Icm icm(dma);
  icm.map(0, 0x100000, 1);
  IcmCache cache({.icm = &icm, .base = 0, .entry_size = 64}, 8, nullptr);
  for (std::uint32_t i = 0; i != 8; ++i) cache.get(i);
  const auto ranges = Icm::merge({{.begin = 6 * 64 - 1, .end = 6 * 64}, {.begin = 64, .end = 129}});
  ASSERT_EQ(ranges.size(), 2u);
  cache.drop(ranges);
  EXPECT_EQ(cache.size(), 5u) << "without 1, 2 and 5";
  for (const std::uint32_t kept : {0u, 3u, 4u, 6u, 7u}) cache.get(kept);
  EXPECT_EQ(cache.counters().misses, 8u);
}

TEST(IcmCacheTest, AnEntryThatWasChangedGoesBackWhenItsPlaceIsNeeded) {
  std::vector<std::byte> memory(4096);
  pcie::DmaSpace dma;
  ASSERT_TRUE(dma.map(0x100000, memory.size(), memory.data(), pcie::DmaAccess::kReadWrite));
  Icm icm(dma);
  icm.map(0, 0x100000, 1);
  IcmCache cache({.icm = &icm, .base = 0, .entry_size = 64}, 2, nullptr);
  cache.make(0).bytes[0] = std::byte{7};
  EXPECT_EQ(memory[0], std::byte{0});
  cache.get(1);
  cache.get(2);
  cache.get(3);
  EXPECT_EQ(memory[0], std::byte{7});
  EXPECT_EQ(cache.counters().write_backs, 1u) << "the others were not changed";
  EXPECT_EQ(cache.counters().evictions, 2u);
  EXPECT_EQ(cache.counters().misses, 3u);
  EXPECT_EQ(cache.get(0).bytes[0], std::byte{7});
  EXPECT_EQ(cache.get(100).bytes, nullptr) << "not mapped";
}

}  // namespace
}  // namespace softhca::jingzhao::test
