// Keys whose pages and pieces are reloaded, wholly or in part.

#include "rdma/page_table.h"

#include <gtest/gtest.h>

#include <array>
#include <random>

#include "rdma/pair.h"

namespace softhca::rdma::test {
namespace {

constexpr std::uint8_t kReadOnly = kLocalRead | kRemoteRead;

TEST(PageTable, EntriesThatWereNeverWrittenAreNoPages) {
  PageTable table;
  EXPECT_EQ(table.get(0).access, 0);
  table.set(5000, {.address = 0x7000, .access = kEveryAccess});
  EXPECT_EQ(table.get(5000).address, 0x7000u);
  EXPECT_EQ(table.get(5000).access, kEveryAccess);
  for (const std::size_t other : {0, 4999, 5001, 1 << 20}) {
    EXPECT_EQ(table.get(other).access, 0) << other;
  }
}

TEST(PageTable, WhetherAllGrantEverythingIsKnownForAnyNumberOfPages) {
  PageTable table;
  std::mt19937 random(3);
  std::vector<bool> limited(3000, true);
  for (int round = 0; round < 4000; ++round) {
    const std::size_t number = random() % limited.size();
    limited[number] = random() % 8 == 0;
    table.set(number,
              {.address = 0x1000 * number, .access = limited[number] ? kReadOnly : kEveryAccess});
    const std::size_t count = random() % (limited.size() + 1);
    const bool any = std::find(limited.begin(), limited.begin() + static_cast<long>(count), true) !=
                     limited.begin() + static_cast<long>(count);
    ASSERT_EQ(table.all_grant_all(count), !any) << count;
  }
  for (std::size_t i = 0; i != 3000; ++i) table.set(i, {.address = 0, .access = kEveryAccess});
  EXPECT_TRUE(table.all_grant_all(3000));
  EXPECT_FALSE(table.all_grant_all(3001));
}

TEST(PageTable, PagesThatFollowEachOtherOnTheBusAreARun) {
  PageTable table;
  for (std::size_t i = 0; i != 2000; ++i) {
    table.set(i, {.address = 0x10'0000 + 0x2000 * i, .access = kEveryAccess});
  }
  table.set(1500, {.address = 0x10'0000 + 0x2000 * 1500, .access = kReadOnly});
  EXPECT_EQ(table.run(1000, 13, 64), 64u);
  EXPECT_EQ(table.run(1490, 13, 64), 10u) << "other rights";
  EXPECT_EQ(table.run(1999, 13, 64), 1u) << "the last";
  EXPECT_EQ(table.run(1000, 12, 64), 1u) << "with pages of half the size there are gaps";
}

TEST(PageTable, ItIsGivenBackInTurns) {
  PageTable table;
  for (std::size_t i = 0; i != 10; ++i) {
    table.set(i * PageTable::kChunk, {.address = 0, .access = kEveryAccess});
  }
  int turns = 0;
  for (util::WorkBudget work(0);; ++turns) {
    work.grant(500);
    if (table.shrink(work)) break;
  }
  EXPECT_GT(turns, 3);
}

class ReloadableKey : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kStart = 0x12'3456;

  ReloadableKey() : memory(64 * 4096) {
    for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = std::byte(i / 4096 * 31 + i);
    EXPECT_TRUE(dma.map(0x10000, memory.size(), memory.data(), pcie::DmaAccess::kReadWrite));
    MemoryKey::Attributes attributes;
    attributes.key = MKey(0x100);
    attributes.access = kLocalRead | kLocalWrite;
    attributes.start = kStart;
    attributes.length = 40 * 4096;
    attributes.form = KeyForm::kPages;
    attributes.reloadable = true;
    key = &keys.insert(attributes);
  }
  void load(std::size_t number, std::size_t page, std::uint8_t access = kEveryAccess) {
    key->load_page(number, {.address = 0x10000 + 4096 * page, .access = access});
  }
  bool check(std::uint64_t address, std::uint64_t length) {
    return static_cast<bool>(keys.check(MKey(0x100), {}, address, length, kLocalRead));
  }

  pcie::DmaSpace dma;
  std::vector<std::byte> memory;
  KeyTable keys{dma, KeyShape(8, 24)};
  MemoryKey* key;
};

TEST_F(ReloadableKey, WithoutPagesItGivesNoAccess) {
  keys.change(*key, [&] { key->refresh(); });
  std::array<std::byte, 4> out{};
  EXPECT_FALSE(check(kStart, 4));
  EXPECT_FALSE(keys.read(*key, kStart, out)) << "least of all to its own address on the bus";
}

TEST_F(ReloadableKey, ItsBytesAreThoseOfItsPagesByAnyOffset) {
  const auto page_of = [](std::size_t number) { return number / 4 * 5 % 16 * 4 + number % 4; };
  keys.change(*key, [&] {
    for (std::size_t i = 0; i != 41; ++i) load(i, page_of(i));
    key->refresh();
  });
  EXPECT_TRUE(key->is_plain());
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    const std::uint64_t offset = random() % (40 * 4096);
    std::vector<std::byte> out(std::min<std::uint64_t>(40 * 4096 - offset, random() % 30000));
    ASSERT_TRUE(check(kStart + offset, out.size()));
    ASSERT_TRUE(keys.read(*key, kStart + offset, out));
    const auto* piece = keys.one_piece(*key, kStart + offset, 1, pcie::DmaAccess::kRead);
    for (std::size_t i = 0; i < out.size(); ++i) {
      const auto at = 0x456 + offset + i;
      ASSERT_EQ(out[i], memory[page_of(at / 4096) * 4096 + at % 4096]);
    }
    ASSERT_EQ(piece,
              memory.data() + page_of((0x456 + offset) / 4096) * 4096 + (0x456 + offset) % 4096);
  }
}

TEST_F(ReloadableKey, CachedPartsOfAKeyAreForgottenWithAChange) {
  keys.change(*key, [&] {
    for (std::size_t i = 0; i != 41; ++i) load(i, i);
    key->refresh();
  });
  const auto generation = keys.generation();
  EXPECT_EQ(keys.one_piece(*key, kStart, 8, pcie::DmaAccess::kRead), memory.data() + 0x456);
  keys.change(*key, [&] {
    load(0, 50);
    key->refresh();
  });
  EXPECT_EQ(keys.one_piece(*key, kStart, 8, pcie::DmaAccess::kRead),
            memory.data() + 50 * 4096 + 0x456);
  EXPECT_NE(keys.generation(), generation) << "who keeps keys has to ask again";
}

TEST_F(ReloadableKey, PagesThatGrantLessAreAskedForAndCharged) {
  const auto change = [&](std::uint8_t access) {
    keys.change(*key, [&] {
      for (std::size_t i = 0; i != 41; ++i) load(i, i);
      load(7, 7, access);
      key->refresh();
    });
  };
  change(kLocalWrite);
  EXPECT_FALSE(check(kStart, 40 * 4096));
  EXPECT_TRUE(check(kStart, 4096));
  EXPECT_TRUE(keys.has_charged());
  EXPECT_NE(keys.work().drain(), 0);
  change(kEveryAccess);
  EXPECT_TRUE(check(kStart, 40 * 4096));
  EXPECT_FALSE(keys.has_charged());
}

// Packets access the pages of an extent one after the other, which was joined for the first.
TEST_F(ReloadableKey, PagesAreChargedWhenTheyAreJoinedToAnExtent) {
  keys.change(*key, [&] {
    for (std::size_t i = 0; i != 40; ++i) load(i, i);
    load(40, 40, kLocalWrite);
    key->refresh();
  });
  const auto cost = [&](std::size_t page) {
    (void)keys.work().drain();
    EXPECT_TRUE(check(kStart + 4096 * page, 8));
    return keys.work().drain();
  };
  EXPECT_GT(cost(0), 40);
  for (std::size_t page = 1; page != 40; ++page) EXPECT_LT(cost(page), 10);
}

// The key's owner chooses the number of pages, and the peer the length of a READ.
TEST_F(ReloadableKey, ALongAccessInspectsABoundedNumberOfPages) {
  constexpr std::size_t kMany = 20'000;
  auto attributes = key->attributes();
  attributes.length = kMany * 4096;
  const auto set_pages = [&](std::size_t absent, std::size_t spread) {
    keys.change(*key, [&] {
      key->set_attributes(attributes);
      for (std::size_t i = 0; i <= kMany; ++i) {
        load(i, spread * i, i == absent ? std::uint8_t{0} : kEveryAccess);
      }
      key->refresh();
    });
    (void)keys.work().drain();
  };
  for (const std::size_t spread : {1, 2}) {
    set_pages(kMany, spread);
    EXPECT_TRUE(check(kStart, attributes.length)) << "the absent page is far away";
    EXPECT_LE(keys.work().drain(), 2'000);
    EXPECT_FALSE(check(kStart + attributes.length - 8, 8));
    set_pages(255, spread);
    EXPECT_FALSE(check(kStart, attributes.length)) << "the first MiB is inspected";
  }
}

TEST(Keys, PiecesOfAPatternAreGoneThroughAsOftenAsItSays) {
  Pair pair;
  pair.connect();
  MemoryKey::Attributes attributes;
  attributes.key = MKey(0xA00);
  attributes.pd = kPd;
  attributes.access = kLocalRead | kLocalWrite | kRemoteWrite;
  attributes.length = 1000;
  attributes.form = KeyForm::kPieces;
  auto& key = pair.b.keys.insert(attributes);
  auto first = End::sge(0x1000, 3);
  auto second = End::sge(0x2000, 2);
  pair.b.keys.change(key, [&] {
    MemoryKey::Pieces pieces;
    pieces.add(first);
    pieces.add(second);
    key.load_pieces(std::move(pieces), {.turns = 4, .strides = {16, 2}});
    key.refresh();
  });
  EXPECT_EQ(key.pieces(), 2u);
  pair.a.fill(0, 100, 3);
  auto request = write(0, 0, 17);
  request.rkey = attributes.key;
  request.remote_address = 3;
  pair.a.post(*pair.qa, request);
  pair.drive();
  EXPECT_EQ(pair.a.hca.sends.at(0).status, WorkStatus::kSuccess);
  const auto* from = pair.a.at(0);
  EXPECT_EQ(std::memcmp(from, pair.b.at(0x2000), 2), 0);
  for (std::size_t turn = 1; turn != 4; ++turn) {
    EXPECT_EQ(std::memcmp(from + 5 * turn - 3, pair.b.at(0x1000 + 16 * turn), 3), 0) << turn;
    EXPECT_EQ(std::memcmp(from + 5 * turn, pair.b.at(0x2000 + 2 * turn), 2), 0) << turn;
  }
  request.remote_address = 15;
  request.sges[0].length = 6;
  pair.a.post(*pair.qa, request);
  pair.drive();
  EXPECT_EQ(pair.a.hca.sends.at(1).status, WorkStatus::kRemoteAccess) << "a fifth turn";
}

}  // namespace
}  // namespace softhca::rdma::test
