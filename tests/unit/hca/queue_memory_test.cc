#include "hca/queue_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "hca/queue_host.h"

namespace softhca::hca {
namespace {

class QueueMemoryTest : public QueueHost {
 protected:
  /// A queue in two pages that are in reverse order. It begins 0x800 bytes into its first page.
  QueueMemory scattered() { return pages({kBase + 2 * kPage, kBase}, 0x800, 0x1800); }
  std::array<std::byte, 16> pattern() const {
    std::array<std::byte, 16> bytes;
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = std::byte(i + 1);
    return bytes;
  }
};

TEST_F(QueueMemoryTest, OffsetsGoThroughThePagesInTheirOrder) {
  auto queue = scattered();
  EXPECT_EQ(queue.at(0, 16), at(kBase + 2 * kPage + 0x800));
  EXPECT_EQ(queue.at(0x800, 16), at(kBase));
  EXPECT_EQ(queue.size(), 0x1800u);
  EXPECT_EQ(queue.pages().size(), 2u);
}

TEST_F(QueueMemoryTest, AnEntryAcrossPagesIsCopiedInPieces) {
  auto queue = scattered();
  EXPECT_EQ(queue.at(0x7F8, 16), nullptr);
  EXPECT_TRUE(queue.write(0x7F8, pattern()));
  EXPECT_EQ(*at(kBase + 2 * kPage + 0xFFF), std::byte{8});
  EXPECT_EQ(*at(kBase), std::byte{9});
  std::array<std::byte, 16> out{};
  EXPECT_TRUE(queue.read(0x7F8, out));
  EXPECT_EQ(out, pattern());
}

TEST_F(QueueMemoryTest, PagesThatFollowEachOtherAreOnePiece) {
  auto queue = pages({kBase, kBase + kPage}, 0, 2 * kPage);
  EXPECT_EQ(queue.at(kPage - 8, 16), at(kBase + kPage - 8));
}

TEST_F(QueueMemoryTest, MemoryThatGoesIsNoticedAndComesBack) {
  // A queue of this many pages looks up each page.
  std::vector<pcie::Iova> many(300, kBase);
  many[0] = kBase + kPage;
  for (auto queue : {scattered(), pages({kBase, kBase + kPage}, 0, 2 * kPage),
                     pages(many, 0, many.size() * kPage)}) {
    EXPECT_NE(queue.at(0, 16), nullptr);
    dma.unmap_all();
    EXPECT_EQ(queue.at(0, 16), nullptr);
    EXPECT_FALSE(queue.write(0, pattern()));
    std::array<std::byte, 16> out{};
    EXPECT_FALSE(queue.read(0, out));
    ASSERT_TRUE(dma.map(kBase, kSize, memory.data(), pcie::DmaAccess::kReadWrite));
    // Mapping a page changes no generation; the next unmap does.
    EXPECT_TRUE(queue.write(0, pattern()));
  }
}

TEST_F(QueueMemoryTest, MemoryBehindAPeerIsReachedByItsReadsAndWrites) {
  make_remote();
  auto queue = scattered();
  EXPECT_EQ(queue.at(0, 16), nullptr);
  EXPECT_TRUE(queue.write(0x7F8, pattern()));
  EXPECT_EQ(*at(kBase), std::byte{9});
  std::array<std::byte, 16> out{};
  EXPECT_TRUE(queue.read(0x7F8, out));
  EXPECT_EQ(out, pattern());
}

#ifndef SOFTHCA_HOT_ASSERTS
TEST_F(QueueMemoryTest, PastItsEndThereIsNothing) {
  std::vector<pcie::Iova> many(300, kBase);
  for (auto queue : {QueueMemory(), pages({}, 0, 0), scattered(), pages(many, 0, 0x800)}) {
    EXPECT_EQ(queue.at(queue.size() - queue.size() % 16, 16), nullptr);
  }
  make_remote();
  auto queue = pages(many, 0, 0x800);
  std::array<std::byte, 16> out{};
  EXPECT_FALSE(queue.read(0x7F8, out));
  EXPECT_FALSE(queue.write(0x7F8, out));
  EXPECT_TRUE(peer.writes.empty());
}
#endif

TEST_F(QueueMemoryTest, PagesNeededCountTheOffset) {
  EXPECT_EQ(QueueMemory::pages_needed(12, 0, 0), 0u);
  EXPECT_EQ(QueueMemory::pages_needed(12, 0, 4096), 1u);
  EXPECT_EQ(QueueMemory::pages_needed(12, 1, 4096), 2u);
}

class QueueBehindKeyTest : public QueueMemoryTest {
 protected:
  static constexpr std::uint64_t kVirtual = 0x7000'0000'0000;
  static constexpr rdma::Pd kPd{7};

  QueueBehindKeyTest() {
    rdma::MemoryKey::Attributes attributes;
    attributes.key = rdma::MKey(0x1234'56);
    attributes.pd = kPd;
    attributes.access = rdma::kLocalRead | rdma::kLocalWrite;
    attributes.start = kVirtual;
    attributes.length = 2 * kPage;
    attributes.pages = {kBase + 2 * kPage, kBase};
    keys.insert(attributes);
  }
  QueueMemory behind(rdma::Pd pd) {
    return QueueMemory::over_key({.keys = &keys,
                                  .key = rdma::MKey(0x1234'56),
                                  .user = {pd, rdma::Qpn(1)},
                                  .address = kVirtual + 0x800},
                                 0x1800);
  }
  rdma::KeyTable keys{dma, rdma::KeyShape(8, 24)};
};

TEST_F(QueueBehindKeyTest, OffsetsAreVirtualAddressesOfTheKey) {
  auto queue = behind(kPd);
  EXPECT_EQ(queue.at(0, 16), at(kBase + 2 * kPage + 0x800));
  EXPECT_EQ(queue.at(0x800, 16), at(kBase));
  EXPECT_EQ(queue.at(0x7F8, 16), nullptr);
  EXPECT_TRUE(queue.write(0x7F8, pattern()));
  EXPECT_EQ(*at(kBase), std::byte{9});
  std::array<std::byte, 16> out{};
  EXPECT_TRUE(queue.read(0x7F8, out));
  EXPECT_EQ(out, pattern());
  EXPECT_TRUE(queue.pages().empty());
}

TEST_F(QueueBehindKeyTest, AKeyOfAnotherProtectionDomainOpensNothing) {
  auto queue = behind(rdma::Pd(8));
  EXPECT_EQ(queue.at(0, 16), nullptr);
  EXPECT_FALSE(queue.write(0, pattern()));
}

TEST_F(QueueBehindKeyTest, AKeyThatIsDestroyedTakesTheQueueWithIt) {
  auto queue = behind(kPd);
  EXPECT_NE(queue.at(0, 16), nullptr);
  keys.erase_index(keys.shape().index(rdma::MKey(0x1234'56)));
  EXPECT_EQ(queue.at(0, 16), nullptr);
  std::array<std::byte, 16> out{};
  EXPECT_FALSE(queue.read(0, out));
}

}  // namespace
}  // namespace softhca::hca
