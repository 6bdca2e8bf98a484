// A queue's translation cache for its last access. A hit must equal the result of the key table,
// and a stale entry must be dropped.
#include "rdma/key_cache.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace softhca::rdma::test {
namespace {

constexpr pcie::Iova kBus = 0x10000;
constexpr std::size_t kSeenPage = 4096;
constexpr std::size_t kSize = 16 * kSeenPage;
constexpr MKey kSeenKey(0x100);

class KeyCacheTest : public ::testing::Test {
 protected:
  KeyCacheTest() : memory_(kSize) { map(memory_); }

  void map(std::vector<std::byte>& memory) {
    ASSERT_TRUE(dma_.map(kBus, kSize, memory.data(), pcie::DmaAccess::kReadWrite));
  }
  /// Contiguous pages except for the middle one. The key ends inside its last page.
  MemoryKey& insert(std::uint8_t access = kLocalRead | kLocalWrite) {
    MemoryKey::Attributes attributes;
    attributes.key = kSeenKey;
    attributes.access = access;
    attributes.start = 0x123456;
    attributes.length = 12 * kSeenPage;
    for (unsigned i = 0; i < 13; ++i)
      attributes.pages.push_back(kBus + (i < 6 ? i : i + 2) * kSeenPage);
    return keys_.insert(attributes);
  }
  std::byte* find(std::uint64_t address, std::uint64_t length, MKey key = kSeenKey) {
    return seen_.find(keys_, key, [] { return KeyUser{}; }, address, length, kLocalWrite);
  }
  /// Looks up without the cache.
  std::byte* look_up(std::uint64_t address, std::uint64_t length, MKey key = kSeenKey) {
    return KeyCache().find(keys_, key, [] { return KeyUser{}; }, address, length, kLocalWrite);
  }

  pcie::DmaSpace dma_;
  std::vector<std::byte> memory_;
  KeyTable keys_{dma_, KeyShape(8, 24)};
  KeyCache seen_;
};

TEST_F(KeyCacheTest, FindsWhatTheTableFinds) {
  insert();
  std::mt19937 random(1);
  unsigned found = 0;
  for (int round = 0; round < 20000; ++round) {
    const auto address = 0x123456 - 100 + random() % (12 * kSeenPage + 200);
    const auto length = 1 + random() % (2 * kSeenPage);
    const auto checked = keys_.check(kSeenKey, {}, address, length, kLocalWrite);
    auto* const expected =
        checked ? keys_.one_piece(*checked.key, address, length, pcie::DmaAccess::kWrite) : nullptr;
    ASSERT_EQ(find(address, length), expected) << address << " " << length;
    found += expected != nullptr;
  }
  EXPECT_GT(found, 10000u);
}

TEST_F(KeyCacheTest, EndsWithTheKeyThoughTheMemoryGoesOn) {
  insert();
  const auto end = 0x123456 + 12 * kSeenPage;
  EXPECT_NE(find(end - 10, 10), nullptr);
  EXPECT_EQ(find(end - 10, 11), nullptr);
  EXPECT_EQ(find(end, 1), nullptr);
  EXPECT_EQ(find(end - 10, UINT64_MAX), nullptr);
}

TEST_F(KeyCacheTest, AnotherVariantIsAnotherKey) {
  insert();
  EXPECT_NE(find(0x123456, 10), nullptr);
  EXPECT_EQ(find(0x123456, 10, MKey(0x101)), nullptr);
}

// IBTA 10.6.3: "invalidated".
TEST_F(KeyCacheTest, AKeyThatIsInvalidatedIsNotFound) {
  auto& key = insert();
  EXPECT_NE(find(0x123456, 10), nullptr);
  key.set_free(true);
  EXPECT_EQ(find(0x123456, 10), nullptr);
}

TEST_F(KeyCacheTest, AKeyInThePlaceOfOneThatWentHasItsOwnRights) {
  insert();
  EXPECT_NE(find(0x123456, 10), nullptr);
  EXPECT_TRUE(keys_.erase_index(1));
  EXPECT_EQ(find(0x123456, 10), nullptr);
  insert(kLocalRead);
  EXPECT_EQ(find(0x123456, 10), nullptr);
}

TEST_F(KeyCacheTest, FollowsTheMapping) {
  insert();
  EXPECT_EQ(find(0x123456, 10), memory_.data() + 0x456);
  ASSERT_TRUE(dma_.unmap(kBus, kSize));
  EXPECT_EQ(find(0x123456, 10), nullptr);
  std::vector<std::byte> other(kSize);
  map(other);
  EXPECT_EQ(find(0x123456, 10), other.data() + 0x456);
  EXPECT_EQ(find(0x123456, 10), look_up(0x123456, 10));
}

}  // namespace
}  // namespace softhca::rdma::test
