// Memory keys: their shape, their pages, and their refusals (IBTA 10.6).

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rdma/pair.h"

namespace softhca::rdma::test {
namespace {

TEST(KeyShape, AnIndexInTheUpperBitsLeavesTheVariantBelow) {
  constexpr KeyShape kShape(8, 24);
  EXPECT_EQ(kShape.key(0x123456, 0x78), MKey(0x12345678));
  EXPECT_EQ(kShape.index(MKey(0x12345678)), 0x123456u);
  EXPECT_EQ(kShape.variant(MKey(0x12345678)), 0x78u);
}

TEST(KeyShape, AnIndexInTheLowBitsLeavesTheVariantAbove) {
  constexpr KeyShape kShape(0, 14);
  EXPECT_EQ(kShape.key(0x1678, 0x2345), MKey(0x2345u << 14 | 0x1678));
  EXPECT_EQ(kShape.index(MKey(0x2345u << 14 | 0x1678)), 0x1678u);
  EXPECT_EQ(kShape.variant(MKey(0x2345u << 14 | 0x1678)), 0x2345u);
  constexpr KeyShape kAllIndex(0, 32);
  EXPECT_EQ(kAllIndex.index(MKey(0xFFFFFFFE)), 0xFFFFFFFEu);
  EXPECT_EQ(kAllIndex.variant(MKey(0xFFFFFFFE)), 0u);
}

TEST(KeyShape, KeysOfOneIndexAreDistinguishedByTheirVariantInEitherShape) {
  pcie::DmaSpace dma;
  for (const auto shape : {KeyShape(8, 24), KeyShape(0, 14)}) {
    KeyTable keys(dma, shape);
    MemoryKey::Attributes attributes;
    attributes.key = shape.key(5, 0x11);
    attributes.access = kLocalRead;
    attributes.length = 100;
    keys.insert(attributes);
    EXPECT_TRUE(keys.check(shape.key(5, 0x11), {}, 0, 100, kLocalRead));
    EXPECT_FALSE(keys.check(shape.key(5, 0x12), {}, 0, 100, kLocalRead)) << "another variant";
    EXPECT_FALSE(keys.check(shape.key(6, 0x11), {}, 0, 100, kLocalRead)) << "another index";
    EXPECT_TRUE(keys.erase_index(5));
    EXPECT_FALSE(keys.check(shape.key(5, 0x11), {}, 0, 100, kLocalRead));
  }
}

// A ConnectX-4 takes lists of 2^17 pieces (log_max_klm_list_size).
TEST(Keys, AKeyWithTheLongestListIsDestroyedInATurn) {
  constexpr std::size_t kLongest = std::size_t{1} << 17;
  constexpr std::int64_t kTurn = 200'000;
  MemoryKey::Attributes attributes;
  attributes.key = MKey(0xA00);
  attributes.indirect.assign(kLongest, {.address = 0, .length = 1, .lkey = kKey});
  MemoryKey key(attributes);
  util::WorkBudget work(kTurn);
  ASSERT_TRUE(key.shrink(work));
  EXPECT_LT(work.done() + key.destroy_work(), kTurn);
  EXPECT_GT(key.destroy_work(), static_cast<std::int64_t>(kLongest) / 2) << "it is not free";
}

TEST(Keys, ReservedKeyNeedsThePermissionOfTheQp) {
  Pair pair;
  pair.connect();
  auto request = write(0, 0x1000, 100);
  request.sges = {{kMemoryIova, 100, kReservedLkey}};
  pair.a.fill(0, 100, 3);
  auto attributes = pair.qa->attributes();
  attributes.reserved_lkey = true;
  ASSERT_TRUE(pair.a.transport.modify(*pair.qa, QpState::kRts, attributes));
  pair.a.post(*pair.qa, request);
  pair.drive();
  EXPECT_EQ(pair.a.hca.sends.at(0).status, WorkStatus::kSuccess);
  EXPECT_EQ(std::memcmp(pair.a.at(0), pair.b.at(0x1000), 100), 0);
  attributes.reserved_lkey = false;
  ASSERT_TRUE(pair.a.transport.modify(*pair.qa, QpState::kRts, attributes));
  pair.a.post(*pair.qa, request);
  pair.drive();
  EXPECT_EQ(pair.a.hca.sends.at(1).status, WorkStatus::kLocalProtection);
}

TEST(Keys, ScatteredPagesAreFoundByAnyOffset) {
  pcie::DmaSpace dma;
  std::vector<std::byte> memory(64 * 4096);
  for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = std::byte(i / 4096 * 31 + i);
  ASSERT_TRUE(dma.map(0x10000, memory.size(), memory.data(), pcie::DmaAccess::kReadWrite));
  KeyTable keys(dma, KeyShape(8, 24));
  MemoryKey::Attributes attributes;
  attributes.key = MKey(0x100);
  attributes.access = kLocalRead | kLocalWrite;
  attributes.start = 0x123456;  // in the middle of its first page
  attributes.length = 60 * 4096;
  for (unsigned i = 0; i < 61; ++i) attributes.pages.push_back(0x10000 + (i * 23 % 64) * 4096);
  auto& key = keys.insert(attributes);
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    const std::uint64_t offset = random() % (60 * 4096);
    std::vector<std::byte> out(std::min<std::uint64_t>(60 * 4096 - offset, random() % 9000));
    ASSERT_TRUE(keys.check(attributes.key, {}, attributes.start + offset, out.size(), kLocalRead));
    ASSERT_TRUE(keys.read(key, attributes.start + offset, out));
    for (std::size_t i = 0; i < out.size(); ++i) {
      const auto at = 0x456 + offset + i;
      ASSERT_EQ(out[i], memory[(at / 4096 * 23 % 64) * 4096 + at % 4096]);
    }
  }
  EXPECT_FALSE(keys.check(attributes.key, {}, attributes.start - 1, 1, kLocalRead));
  EXPECT_FALSE(keys.check(attributes.key, {}, attributes.start + 60 * 4096, 1, kLocalRead));
  EXPECT_FALSE(keys.check(attributes.key, {}, attributes.start, UINT64_MAX, kLocalRead));
  EXPECT_TRUE(keys.erase_index(1));
  EXPECT_FALSE(keys.erase_index(1));
}

TEST(Keys, MemoryIsUnreachableOnceItsMappingIsGone) {
  Pair pair;
  pair.connect();
  pair.a.post(*pair.qa, write(0, 0, 100));
  pair.drive();
  ASSERT_TRUE(pair.b.dma.unmap(kMemoryIova, kMemorySize));
  pair.a.post(*pair.qa, write(0, 0, 100));
  pair.drive();
  EXPECT_THAT(pair.a.hca.send_statuses(),
              ::testing::ElementsAre(WorkStatus::kSuccess, WorkStatus::kRemoteOperation));
}

// ibv_alloc_null_mr(3): writes are discarded and reads return 0, at any address.
TEST(Keys, TheDumpFillKeyReadsAsZerosAndKeepsNothing) {
  Pair pair;
  pair.connect();
  pair.a.fill(0, 0x10000, 3);
  pair.b.fill(0, 0x20000, 4);
  const std::vector before(pair.b.at(0), pair.b.at(0x20000));
  auto request = write(0, 0x1000, 100);
  request.sges = {End::sge(0, 100), {0xFFFF'FFFF'FFFF'F000, 9000, kDumpFillKey}, End::sge(100, 50)};
  pair.a.post(*pair.qa, request);
  pair.drive();
  ASSERT_EQ(pair.a.hca.sends.at(0).status, WorkStatus::kSuccess);
  EXPECT_EQ(std::memcmp(pair.a.at(0), pair.b.at(0x1000), 100), 0);
  for (std::size_t i = 0; i != 9000; ++i) ASSERT_EQ(*pair.b.at(0x1064 + i), std::byte{0}) << i;
  EXPECT_EQ(std::memcmp(pair.a.at(100), pair.b.at(0x1064 + 9000), 50), 0);
  EXPECT_EQ(*pair.b.at(0x1064 + 9050), before[0x1064 + 9050]);

  const std::vector mine(pair.a.at(0), pair.a.at(0x10000));
  auto back = read(0x8000, 0x10000, 6000);
  back.sges = {End::sge(0x8000, 100), {0, 5000, kDumpFillKey}, End::sge(0x9000, 900)};
  pair.a.post(*pair.qa, back);
  pair.drive();
  ASSERT_EQ(pair.a.hca.sends.at(1).status, WorkStatus::kSuccess);
  EXPECT_EQ(std::memcmp(pair.a.at(0x8000), pair.b.at(0x10000), 100), 0);
  EXPECT_EQ(std::memcmp(pair.a.at(0x9000), pair.b.at(0x10000 + 5100), 900), 0);
  EXPECT_TRUE(std::equal(mine.begin() + 0x8064, mine.begin() + 0x9000, pair.a.at(0x8064)))
      << "and nothing else is written";
}

TEST(Keys, TheDumpFillKeyIsNoKeyForThePeer) {
  for (const auto& request : {write(0, 0, 100), read(0, 0, 100), fetch_add(0, 0, 1)}) {
    Pair pair;
    pair.connect();
    auto remote = request;
    remote.rkey = kDumpFillKey;
    pair.a.post(*pair.qa, remote);
    pair.drive();
    EXPECT_EQ(pair.a.hca.sends.at(0).status, WorkStatus::kRemoteAccess);
  }
}

TEST(Keys, AReceiveIntoTheDumpFillKeyCompletesWithItsLength) {
  Pair pair;
  pair.connect();
  pair.b.fill(0, 0x10000, 4);
  const std::vector before(pair.b.at(0), pair.b.at(0x10000));
  pair.b.post_receive(*pair.qb, {{0, 5000, kDumpFillKey}});
  pair.a.post(*pair.qa, send(0, 4000));
  pair.drive();
  ASSERT_EQ(pair.a.hca.sends.at(0).status, WorkStatus::kSuccess);
  EXPECT_EQ(pair.b.hca.receives.at(0).completion.byte_count, 4000u);
  EXPECT_TRUE(std::equal(before.begin(), before.end(), pair.b.at(0)));
}

/// A device may keep its keys elsewhere and load them when they are used.
class Bringer final : public KeySource {
 public:
  explicit Bringer(KeyTable& keys) : keys_(keys) { keys.set_source(this); }
  ~Bringer() override { keys_.set_source(nullptr); }
  void bring(std::uint32_t index) override {
    ++asked;
    if (there.key == MKey{} || keys_.shape().index(there.key) != index) return;
    keys_.insert(there);
  }
  MemoryKey::Attributes there;
  unsigned asked = 0;

 private:
  KeyTable& keys_;
};

TEST(Keys, AKeyThatIsNotInTheTableIsBroughtWhenItIsUsed) {
  Pair pair;
  pair.connect();
  Bringer bringer(pair.b.keys);
  const auto key = pair.b.keys.shape().key(0x77, 5);
  bringer.there.key = key;
  bringer.there.pd = kPd;
  bringer.there.access = kRemoteWrite;
  bringer.there.start = kMemoryIova;
  bringer.there.length = 0x1000;
  pair.a.fill(0, 100, 3);
  const auto write_there = [&](MKey rkey) {
    auto request = write(0, 0, 100);
    request.rkey = rkey;
    request.remote_address = kMemoryIova;
    pair.a.post(*pair.qa, request);
    pair.drive();
    return pair.a.hca.sends.back().status;
  };
  for (unsigned i = 0; i != 3; ++i) EXPECT_EQ(write_there(key), WorkStatus::kSuccess);
  EXPECT_EQ(bringer.asked, 1u) << "it is in the table from then on";
  EXPECT_EQ(std::memcmp(pair.a.at(0), pair.b.at(0), 100), 0);
  ASSERT_TRUE(pair.b.keys.erase_index(0x77));
  EXPECT_EQ(write_there(key), WorkStatus::kSuccess);
  EXPECT_EQ(bringer.asked, 2u) << "it had left the table, and is brought again";
  ASSERT_TRUE(pair.b.keys.erase_index(0x77));
  bringer.there = {};
  EXPECT_EQ(write_there(key), WorkStatus::kRemoteAccess) << "there is no such key";
}

// As a piece of an indirect key, it takes its share of the bytes.
TEST(Keys, WhatFollowsTheDumpFillKeyInAListGetsItsOwnBytes) {
  Pair pair;
  pair.connect();
  pair.a.fill(0, 0x10000, 3);
  MemoryKey::Attributes list;
  list.key = MKey(0xA00);
  list.pd = kPd;
  list.access = kLocalRead | kLocalWrite | kRemoteWrite;
  list.length = 250;
  list.indirect = {End::sge(0x9000, 100), {0, 50, kDumpFillKey}, End::sge(0x100, 100)};
  auto& key = pair.b.keys.insert(list);
  auto request = write(0x1000, 0, 250);
  request.rkey = list.key;
  request.remote_address = 0;
  pair.a.post(*pair.qa, request);
  pair.drive();
  ASSERT_EQ(pair.a.hca.sends.at(0).status, WorkStatus::kSuccess);
  EXPECT_EQ(std::memcmp(pair.b.at(0x9000), pair.a.at(0x1000), 100), 0);
  EXPECT_EQ(std::memcmp(pair.b.at(0x100), pair.a.at(0x1000 + 150), 100), 0);

  ASSERT_TRUE(pair.b.keys.write(key, 0, {pair.a.at(0x2000), 250}));
  EXPECT_EQ(std::memcmp(pair.b.at(0x9000), pair.a.at(0x2000), 100), 0);
  EXPECT_EQ(std::memcmp(pair.b.at(0x100), pair.a.at(0x2000 + 150), 100), 0);
}

TEST(Keys, IndirectKeysThatLeadToThemselvesEnd) {
  Pair pair;
  pair.connect();
  MemoryKey::Attributes loop;
  loop.key = MKey(0xA00);
  loop.pd = kPd;
  loop.access = kLocalRead | kLocalWrite | kRemoteWrite;
  loop.start = 0;
  loop.length = 1000;
  loop.indirect = {{0, 1000, loop.key}};
  pair.b.keys.insert(loop);
  auto request = write(0, 0, 100);
  request.rkey = loop.key;
  request.remote_address = 0;
  pair.a.post(*pair.qa, request);
  pair.drive();
  EXPECT_EQ(pair.a.hca.sends.at(0).status, WorkStatus::kRemoteOperation);
}

}  // namespace
}  // namespace softhca::rdma::test
