#include "pcie/dma_space.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <numeric>
#include <tuple>
#include <vector>

namespace softhca::pcie {
namespace {

/// Memory of a peer, which counts the accesses.
class PeerMemory final : public RemoteMemory {
 public:
  bool dma_read(Iova from, std::span<std::byte> out) override {
    ++reads;
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<std::byte>(from + i);
    return !gone;
  }
  bool dma_write(Iova to, std::span<const std::byte> in) override {
    ++writes;
    last_write_at = to;
    last_write.assign(in.begin(), in.end());
    return !gone;
  }
  unsigned reads = 0;
  unsigned writes = 0;
  Iova last_write_at = 0;
  std::vector<std::byte> last_write;
  bool gone = false;
};

class DmaSpaceTest : public ::testing::Test {
 protected:
  DmaSpaceTest() {
    for (std::size_t i = 0; i < low_.size(); ++i) low_[i] = static_cast<std::byte>(i);
    for (std::size_t i = 0; i < high_.size(); ++i) high_[i] = static_cast<std::byte>(0x80 + i);
  }
  std::array<std::byte, 64> low_;
  std::array<std::byte, 64> high_;
  DmaSpace dma_;
};

TEST_F(DmaSpaceTest, TranslatesAnAddressInsideAMapping) {
  ASSERT_TRUE(dma_.map(0x1000, 64, low_.data(), DmaAccess::kReadWrite));
  EXPECT_EQ(dma_.translate(0x1000, 64, DmaAccess::kRead), low_.data());
  EXPECT_EQ(dma_.translate(0x103f, 1, DmaAccess::kWrite), low_.data() + 63);
}

TEST_F(DmaSpaceTest, TranslatesNothingThatLeavesItsMapping) {
  ASSERT_TRUE(dma_.map(0x1000, 64, low_.data(), DmaAccess::kReadWrite));
  EXPECT_EQ(dma_.translate(0x0fff, 1, DmaAccess::kRead), nullptr);
  EXPECT_EQ(dma_.translate(0x0fff, 2, DmaAccess::kRead), nullptr);
  EXPECT_EQ(dma_.translate(0x1040, 1, DmaAccess::kRead), nullptr);
  EXPECT_EQ(dma_.translate(0x103f, 2, DmaAccess::kRead), nullptr);
  EXPECT_EQ(dma_.translate(0x1000, UINT64_MAX, DmaAccess::kRead), nullptr);
  EXPECT_EQ(dma_.translate(0x1000, 0, DmaAccess::kRead), nullptr);
}

TEST_F(DmaSpaceTest, HonoursTheAccessThatWasGranted) {
  ASSERT_TRUE(dma_.map(0, 64, low_.data(), DmaAccess::kRead));
  ASSERT_TRUE(dma_.map(64, 64, high_.data(), DmaAccess::kWrite));
  std::array<std::byte, 8> data{};
  EXPECT_EQ(dma_.translate(0, 8, DmaAccess::kWrite), nullptr);
  EXPECT_EQ(dma_.translate(64, 8, DmaAccess::kRead), nullptr);
  EXPECT_EQ(dma_.translate(0, 8, DmaAccess::kReadWrite), nullptr);
  EXPECT_FALSE(dma_.write(0, data));
  EXPECT_FALSE(dma_.read(64, data));
  EXPECT_TRUE(dma_.read(0, data));
  EXPECT_TRUE(dma_.write(64, data));
}

TEST_F(DmaSpaceTest, RefusesMapsThatOverlapWrapOrAreEmpty) {
  ASSERT_TRUE(dma_.map(0x1000, 64, low_.data(), DmaAccess::kReadWrite));
  EXPECT_FALSE(dma_.map(0x1000, 64, high_.data(), DmaAccess::kReadWrite));
  EXPECT_FALSE(dma_.map(0x0fff, 2, high_.data(), DmaAccess::kReadWrite));
  EXPECT_FALSE(dma_.map(0x103f, 2, high_.data(), DmaAccess::kReadWrite));
  EXPECT_FALSE(dma_.map(0, 0x3000, high_.data(), DmaAccess::kReadWrite));
  EXPECT_FALSE(dma_.map(0x2000, 0, high_.data(), DmaAccess::kReadWrite));
  EXPECT_FALSE(dma_.map(UINT64_MAX, 2, high_.data(), DmaAccess::kReadWrite));
  EXPECT_FALSE(dma_.map(0x2000, 1, nullptr, DmaAccess::kReadWrite));
  EXPECT_TRUE(dma_.map(0x0fff, 1, high_.data(), DmaAccess::kReadWrite));
  EXPECT_TRUE(dma_.map(0x1040, 1, high_.data(), DmaAccess::kReadWrite));
  EXPECT_EQ(dma_.mappings().size(), 3u);
}

TEST_F(DmaSpaceTest, ReadsAndWritesAcrossAdjacentMappings) {
  ASSERT_TRUE(dma_.map(0, 64, low_.data(), DmaAccess::kReadWrite));
  ASSERT_TRUE(dma_.map(64, 64, high_.data(), DmaAccess::kReadWrite));
  std::array<std::byte, 8> data{};
  ASSERT_TRUE(dma_.read(60, data));
  EXPECT_EQ(data[3], low_[63]);
  EXPECT_EQ(data[4], high_[0]);
  data.fill(std::byte{0xee});
  ASSERT_TRUE(dma_.write(60, data));
  EXPECT_EQ(low_[63], std::byte{0xee});
  EXPECT_EQ(high_[3], std::byte{0xee});
  EXPECT_EQ(high_[4], std::byte{0x84});
}

TEST_F(DmaSpaceTest, FailsAtAHoleBetweenMappings) {
  ASSERT_TRUE(dma_.map(0, 64, low_.data(), DmaAccess::kReadWrite));
  ASSERT_TRUE(dma_.map(65, 63, high_.data(), DmaAccess::kReadWrite));
  std::array<std::byte, 8> data{};
  EXPECT_FALSE(dma_.read(60, data));
  EXPECT_FALSE(dma_.write(60, data));
}

TEST_F(DmaSpaceTest, DoesNotGoOnAtAddressZeroAfterTheLastAddress) {
  ASSERT_TRUE(dma_.map(UINT64_MAX - 7, 8, high_.data(), DmaAccess::kReadWrite));
  ASSERT_TRUE(dma_.map(0, 64, low_.data(), DmaAccess::kReadWrite));
  std::array<std::byte, 16> data{};
  EXPECT_FALSE(dma_.read(UINT64_MAX - 7, data));
  EXPECT_FALSE(dma_.write(UINT64_MAX - 7, data));
  EXPECT_TRUE(dma_.read(UINT64_MAX - 7, std::span(data).first(8)));
}

TEST_F(DmaSpaceTest, UnmapTakesExactlyWhatWasMapped) {
  ASSERT_TRUE(dma_.map(0x1000, 64, low_.data(), DmaAccess::kReadWrite));
  EXPECT_FALSE(dma_.unmap(0x1000, 63));
  EXPECT_FALSE(dma_.unmap(0x1001, 63));
  EXPECT_FALSE(dma_.unmap(0x2000, 64));
  EXPECT_TRUE(dma_.unmap(0x1000, 64));
  EXPECT_FALSE(dma_.unmap(0x1000, 64));
  EXPECT_EQ(dma_.translate(0x1000, 1, DmaAccess::kRead), nullptr);
}

TEST_F(DmaSpaceTest, GenerationChangesWithEveryUnmapAndOnlyThen) {
  const auto first = dma_.generation();
  ASSERT_TRUE(dma_.map(0, 64, low_.data(), DmaAccess::kReadWrite));
  EXPECT_EQ(dma_.generation(), first);
  ASSERT_TRUE(dma_.unmap(0, 64));
  const auto second = dma_.generation();
  EXPECT_NE(second, first);
  dma_.unmap_all();
  EXPECT_EQ(dma_.generation(), second);
  ASSERT_TRUE(dma_.map(0, 64, low_.data(), DmaAccess::kReadWrite));
  dma_.unmap_all();
  EXPECT_NE(dma_.generation(), second);
}

TEST_F(DmaSpaceTest, ReachesRemoteMemoryThroughThePeer) {
  PeerMemory peer;
  ASSERT_TRUE(dma_.map(0, 64, low_.data(), DmaAccess::kReadWrite));
  ASSERT_TRUE(dma_.map_remote(64, 64, peer, DmaAccess::kReadWrite));
  EXPECT_EQ(dma_.translate(64, 1, DmaAccess::kRead), nullptr);
  std::array<std::byte, 8> data{};
  ASSERT_TRUE(dma_.read(60, data));
  EXPECT_EQ(peer.reads, 1u);
  EXPECT_EQ(data[4], std::byte{64});
  ASSERT_TRUE(dma_.write(60, data));
  EXPECT_EQ(peer.last_write_at, 64u);
  EXPECT_EQ(peer.last_write.size(), 4u);
  peer.gone = true;
  EXPECT_FALSE(dma_.read(64, data));
  EXPECT_FALSE(dma_.write(64, data));
}

TEST_F(DmaSpaceTest, TranslatePrefixStopsAtTheEndOfTheMapping) {
  ASSERT_TRUE(dma_.map(0, 64, low_.data(), DmaAccess::kReadWrite));
  EXPECT_EQ(dma_.translate_prefix(60, 100, DmaAccess::kRead).size(), 4u);
  EXPECT_EQ(dma_.translate_prefix(8, 16, DmaAccess::kRead).data(), low_.data() + 8);
  EXPECT_EQ(dma_.translate_prefix(8, 16, DmaAccess::kRead).size(), 16u);
  EXPECT_TRUE(dma_.translate_prefix(64, 1, DmaAccess::kRead).empty());
}

/// Records the accesses that it is notified of.
struct RecordingTap final : DmaTap {
  void handle_dma(Iova iova, std::size_t size, DmaAccess access) override {
    seen.emplace_back(iova, size, access);
  }
  std::vector<std::tuple<Iova, std::size_t, DmaAccess>> seen;
};

TEST_F(DmaSpaceTest, ATapSeesEveryAccessBecauseNothingIsInReach) {
  RecordingTap tap;
  PeerMemory peer;
  (void)RemoteAccesses::take();
  ASSERT_TRUE(dma_.map(0, 64, low_.data(), DmaAccess::kReadWrite));
  const auto before = dma_.generation();
  dma_.set_tap(&tap);
  EXPECT_NE(dma_.generation(), before) << "translations of before are no more";
  ASSERT_TRUE(dma_.map_remote(64, 64, peer, DmaAccess::kRead));
  EXPECT_EQ(dma_.translate(0, 8, DmaAccess::kRead), nullptr);
  EXPECT_TRUE(dma_.translate_prefix(0, 8, DmaAccess::kRead).empty());
  EXPECT_EQ(dma_.window(0, DmaAccess::kRead).host, nullptr);
  std::array<std::byte, 8> data{};
  data[0] = std::byte{42};
  EXPECT_TRUE(dma_.write(8, data));
  EXPECT_EQ(low_[8], std::byte{42});
  EXPECT_TRUE(dma_.read(60, data));
  EXPECT_EQ(peer.reads, 1u) << "what is behind a peer stays there";
  EXPECT_FALSE(dma_.write(64, data)) << "as rights stay what they are";
  using Seen = decltype(tap.seen)::value_type;
  EXPECT_EQ(tap.seen,
            (std::vector<Seen>{
                {8, 8, DmaAccess::kWrite}, {60, 4, DmaAccess::kRead}, {64, 4, DmaAccess::kRead}}));
  EXPECT_EQ(RemoteAccesses::take(), 1u) << "local memory costs no message";
  ASSERT_TRUE(dma_.unmap(0, 64));
  EXPECT_FALSE(dma_.read(0, data));
  dma_.set_tap(nullptr);
  ASSERT_TRUE(dma_.map(0, 64, low_.data(), DmaAccess::kReadWrite));
  EXPECT_EQ(dma_.translate(0, 8, DmaAccess::kRead), low_.data());
}

TEST_F(DmaSpaceTest, NothingIsReachableWithoutBusMastering) {
  PeerMemory peer;
  std::array<std::byte, 8> data{};
  ASSERT_TRUE(dma_.map(0, 64, low_.data(), DmaAccess::kReadWrite));
  ASSERT_TRUE(dma_.map_remote(64, 64, peer, DmaAccess::kReadWrite));
  ASSERT_NE(dma_.translate(0, 8, DmaAccess::kRead), nullptr);
  dma_.set_bus_master(false);
  EXPECT_EQ(dma_.translate(0, 8, DmaAccess::kRead), nullptr);
  EXPECT_TRUE(dma_.translate_prefix(0, 8, DmaAccess::kRead).empty());
  EXPECT_FALSE(dma_.read(0, data));
  EXPECT_FALSE(dma_.write(0, data));
  EXPECT_FALSE(dma_.read(64, data));
  EXPECT_FALSE(dma_.write(64, data));
  EXPECT_EQ(peer.reads + peer.writes, 0u);
  dma_.set_bus_master(true);
  EXPECT_EQ(dma_.translate(0, 8, DmaAccess::kRead), low_.data());
  EXPECT_TRUE(dma_.read(60, data));
}

TEST_F(DmaSpaceTest, MappingsComeAndGoWithoutBusMastering) {
  dma_.set_bus_master(false);
  ASSERT_TRUE(dma_.map(0, 64, low_.data(), DmaAccess::kReadWrite));
  ASSERT_TRUE(dma_.map(64, 64, high_.data(), DmaAccess::kReadWrite));
  EXPECT_FALSE(dma_.map(32, 64, low_.data(), DmaAccess::kReadWrite)) << "overlaps";
  EXPECT_EQ(dma_.translate(0, 8, DmaAccess::kRead), nullptr);
  ASSERT_TRUE(dma_.unmap(0, 64));
  dma_.set_bus_master(true);
  EXPECT_EQ(dma_.translate(0, 8, DmaAccess::kRead), nullptr);
  EXPECT_EQ(dma_.translate(64, 8, DmaAccess::kRead), high_.data());
}

TEST_F(DmaSpaceTest, SwitchingBusMasteringEndsTranslations) {
  const auto first = dma_.generation();
  dma_.set_bus_master(true);
  EXPECT_EQ(dma_.generation(), first) << "nothing has changed";
  dma_.set_bus_master(false);
  const auto second = dma_.generation();
  EXPECT_NE(second, first);
  dma_.set_bus_master(true);
  EXPECT_NE(dma_.generation(), second) << "who found nothing must look again";
}

TEST_F(DmaSpaceTest, HoldersOfPointersAreNotifiedBeforeTheirMemoryGoes) {
  ASSERT_TRUE(dma_.map(0x1000, 64, low_.data(), DmaAccess::kReadWrite));
  unsigned told = 0;
  bool reachable = false;
  dma_.set_before_loss([&] {
    ++told;
    reachable = dma_.translate(0x1000, 1, DmaAccess::kRead) != nullptr;
    return 7;
  });
  EXPECT_EQ(dma_.take_loss_work(), 0);
  dma_.set_bus_master(false);
  EXPECT_EQ(told, 1u);
  EXPECT_TRUE(reachable);
  dma_.set_bus_master(true);
  EXPECT_EQ(told, 1u) << "nothing goes";
  ASSERT_TRUE(dma_.unmap(0x1000, 64));
  EXPECT_EQ(told, 2u);
  EXPECT_TRUE(reachable);
  ASSERT_TRUE(dma_.map(0x1000, 64, low_.data(), DmaAccess::kReadWrite));
  EXPECT_EQ(told, 2u);
  dma_.unmap_all();
  EXPECT_EQ(told, 3u);
  EXPECT_TRUE(reachable);
  EXPECT_FALSE(dma_.unmap(0x1000, 64));
  EXPECT_EQ(told, 3u);
  EXPECT_EQ(dma_.take_loss_work(), 3 * 7) << "who asked for it pays for it";
  EXPECT_EQ(dma_.take_loss_work(), 0);
}

TEST_F(DmaSpaceTest, ManyMappingsAreTakenAtOnce) {
  for (Iova i = 0; i != 10; ++i) {
    ASSERT_TRUE(dma_.map(i * 100, 50, low_.data() + i, DmaAccess::kReadWrite));
  }
  unsigned told = 0;
  dma_.set_before_loss([&] { return ++told; });
  // Begins with the first mapping that ends after the address.
  EXPECT_EQ(dma_.mappings_from(249).front().iova, 200u);
  EXPECT_EQ(dma_.mappings_from(250).front().iova, 300u);
  EXPECT_TRUE(dma_.mappings_from(950).empty());
  const auto generation = dma_.generation();
  const auto taken = dma_.take(dma_.mappings_from(300).first(5));
  ASSERT_EQ(taken.size(), 5u);
  EXPECT_EQ(taken.front().iova, 300u);
  EXPECT_EQ(taken.back().host, low_.data() + 7);
  EXPECT_EQ(told, 1u);
  EXPECT_NE(dma_.generation(), generation);
  ASSERT_EQ(dma_.mappings().size(), 5u);
  EXPECT_EQ(dma_.mappings()[3].iova, 800u);
  EXPECT_EQ(dma_.translate(300, 1, DmaAccess::kRead), nullptr);
  EXPECT_NE(dma_.translate(800, 1, DmaAccess::kRead), nullptr);
  EXPECT_EQ(dma_.take(dma_.mappings()).size(), 5u);
  EXPECT_TRUE(dma_.mappings().empty());
}

TEST_F(DmaSpaceTest, FindsEveryOneOfManyMappings) {
  std::vector<std::byte> memory(1000 * 16);
  for (std::size_t i = 0; i < 1000; ++i) {
    const auto slot = (i * 7) % 1000;
    ASSERT_TRUE(dma_.map(slot * 32, 16, &memory[slot * 16], DmaAccess::kReadWrite));
  }
  for (std::size_t i = 0; i < 1000; ++i) {
    EXPECT_EQ(dma_.translate(i * 32 + 15, 1, DmaAccess::kRead), &memory[i * 16 + 15]);
    EXPECT_EQ(dma_.translate(i * 32 + 16, 1, DmaAccess::kRead), nullptr);
    EXPECT_TRUE(dma_.overlaps(i * 32 + 8, 100));
    EXPECT_FALSE(dma_.overlaps(i * 32 + 16, 16));
  }
}

}  // namespace
}  // namespace softhca::pcie
