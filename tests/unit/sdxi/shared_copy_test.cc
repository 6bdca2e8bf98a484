// A copy carried out by several threads, chunk by chunk.
#include "sdxi/shared_copy.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "sdxi/workers_machine.h"
#include "util/unordered_access.h"

namespace softhca::sdxi::test {
namespace {

constexpr auto kChunk = SharedCopy::kChunk;
constexpr auto kUntouched = std::byte{0xee};

class SharedCopyTest : public ::testing::Test {
 protected:
  ~SharedCopyTest() override { end_helpers(); }

  SharedCopy::Buffers buffers(std::uint64_t size) {
    auto i = from_.size();
    from_.resize(size);
    for (; i < size; ++i) from_[i] = static_cast<std::byte>(i * 31 + i / 251);
    to_.assign(size, kUntouched);
    return {to_.data(), from_.data(), size, size};
  }
  void start_helpers(unsigned count) {
    for (unsigned i = 0; i < count; ++i) {
      helpers_.emplace_back([this] {
        while (!ending_) helped_ += copy_.copy_next();
      });
    }
  }
  void end_helpers() {
    ending_ = true;
    for (auto& helper : helpers_) helper.join();
    helpers_.clear();
  }
  /// Copies all remaining chunks, with this thread taking part.
  std::uint64_t carry_out() {
    std::uint64_t sum = 0;
    while (const auto bytes = copy_.copy_next()) sum += bytes;
    return sum;
  }
  /// True if the first `done` bytes equal the source's, and no others were written.
  bool is_copied(std::uint64_t done) const {
    const util::UnorderedAccess copied;
    return std::memcmp(to_.data(), from_.data(), done) == 0 &&
           is_all(std::span(to_).subspan(done), kUntouched);
  }

  SharedCopy copy_;
  std::vector<std::byte> from_, to_;
  std::atomic<std::uint64_t> helped_ = 0;
  std::atomic<bool> ending_ = false;
  std::vector<std::thread> helpers_;
};

TEST_F(SharedCopyTest, OneThreadAloneTakesChunksInOrderAndTheRestLast) {
  ASSERT_TRUE(copy_.open(buffers(2 * kChunk + 100)));
  EXPECT_EQ(copy_.taken(), 0u);
  EXPECT_EQ(copy_.copy_next(), kChunk);
  EXPECT_TRUE(is_copied(kChunk));
  EXPECT_EQ(copy_.copy_next(), kChunk);
  EXPECT_EQ(copy_.taken(), 2 * kChunk);
  EXPECT_EQ(copy_.copy_next(), 100u);
  EXPECT_EQ(copy_.copy_next(), 0u);
  EXPECT_EQ(copy_.taken(), 2 * kChunk + 100);
  EXPECT_EQ(copy_.close(), 2 * kChunk + 100);
  EXPECT_TRUE(is_copied(2 * kChunk + 100));
}

TEST_F(SharedCopyTest, ClosedEarlyItEndsAtAChunk) {
  ASSERT_TRUE(copy_.open(buffers(4 * kChunk)));
  EXPECT_EQ(copy_.copy_next(), kChunk);
  EXPECT_EQ(copy_.close(), kChunk);
  EXPECT_EQ(copy_.copy_next(), 0u);
  EXPECT_TRUE(is_copied(kChunk));
}

TEST_F(SharedCopyTest, NoPieceIsTakenBeforeItIsOpened) {
  EXPECT_EQ(copy_.copy_next(), 0u);
  ASSERT_TRUE(copy_.open(buffers(kChunk)));
  EXPECT_EQ(copy_.close(), 0u);
  EXPECT_EQ(copy_.copy_next(), 0u);
  EXPECT_TRUE(is_copied(0));
}

TEST_F(SharedCopyTest, ItHasOneOwnerAtATime) {
  ASSERT_TRUE(copy_.open(buffers(2 * kChunk)));
  std::vector<std::byte> other(kChunk);
  EXPECT_FALSE(copy_.open({other.data(), from_.data(), kChunk, kChunk}));
  EXPECT_EQ(carry_out(), 2 * kChunk);
  EXPECT_FALSE(copy_.open({other.data(), from_.data(), kChunk, kChunk}));
  EXPECT_EQ(copy_.close(), 2 * kChunk);
  EXPECT_TRUE(copy_.open({other.data(), from_.data(), kChunk, kChunk}));
  EXPECT_EQ(copy_.close(), 0u);
}

TEST_F(SharedCopyTest, EachChunkIsTakenOnce) {
  start_helpers(3);
  std::uint64_t expected = 0, own = 0;
  for (std::uint64_t round = 1; round <= 40; ++round) {
    const auto size = round * kChunk + round;
    ASSERT_TRUE(copy_.open(buffers(size)));
    own += carry_out();
    ASSERT_EQ(copy_.close(), size);
    ASSERT_TRUE(is_copied(size));
    expected += size;
  }
  end_helpers();
  EXPECT_EQ(own + helped_, expected);
}

// A closed copy is complete from its beginning to a point, and does not change afterwards.
TEST_F(SharedCopyTest, ClosingWaitsForChunksUnderWay) {
  start_helpers(2);
  const auto all = buffers(6 * kChunk);
  // Other processes may occupy the processors.
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  for (unsigned round = 0; round != 120; ++round) {
    ASSERT_TRUE(copy_.open(all));
    const auto own = round % 3;
    for (unsigned i = 0; i != own; ++i) (void)copy_.copy_next();
    // In most rounds, a helper has begun.
    while (round % 4 != 0 && copy_.taken() <= own * kChunk &&
           std::chrono::steady_clock::now() < until) {
      std::this_thread::yield();
    }
    const auto done = copy_.close();
    ASSERT_GE(done, own * kChunk);
    ASSERT_TRUE(is_copied(done)) << "round " << round << ", " << done;
    const util::UnorderedAccess owner;
    std::memset(to_.data(), static_cast<int>(kUntouched), to_.size());
  }
}

}  // namespace
}  // namespace softhca::sdxi::test
