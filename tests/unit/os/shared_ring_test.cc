#include "os/shared_ring.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace softhca::os {
namespace {

constexpr std::size_t kCapacity = SharedRing::kCapacityMin;

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

bool send(RingProducer& producer, std::string_view text) {
  const auto room = producer.reserve(text.size());
  if (room.empty()) return false;
  std::memcpy(room.data(), text.data(), text.size());
  producer.publish();
  return true;
}

/// Both ends, each with its own mapping, as in two processes.
class SharedRingTest : public ::testing::Test {
 protected:
  /// Writes to the file as a process that breaks all rules might.
  template <class Value>
  void poke(std::size_t offset, Value value) {
    ASSERT_EQ(::pwrite(ours_.fd(), &value, sizeof value, static_cast<off_t>(offset)),
              static_cast<ssize_t>(sizeof value));
  }
  static constexpr std::size_t kWritten = 0, kRead = 64, kData = 4096;

  SharedRing ours_ = SharedRing::create(kCapacity).value();
  SharedRing theirs_ = SharedRing::attach(ours_.fd()).value();
  RingProducer producer_{ours_};
  RingConsumer consumer_{theirs_};
};

TEST_F(SharedRingTest, RecordsArriveWholeAndInOrder) {
  EXPECT_TRUE(consumer_.next().empty());
  ASSERT_TRUE(send(producer_, "one"));
  ASSERT_TRUE(send(producer_, "and another one"));
  EXPECT_EQ(text_of(consumer_.next()), "one");
  EXPECT_EQ(text_of(consumer_.next()), "and another one");
  EXPECT_TRUE(consumer_.next().empty());
  EXPECT_FALSE(consumer_.broken());
}

TEST_F(SharedRingTest, AReservedRecordIsSeenOnlyWhenItIsPublished) {
  ASSERT_EQ(producer_.reserve(5).size(), 5u);
  EXPECT_TRUE(consumer_.next().empty());
}

TEST_F(SharedRingTest, AFullRingRefusesUntilARecordIsReleased) {
  const std::string record(SharedRing::kRecordMax, 'x');
  while (send(producer_, record)) {
  }
  EXPECT_FALSE(producer_.broken());
  ASSERT_EQ(consumer_.next().size(), record.size());
  EXPECT_FALSE(send(producer_, record)) << "it is read, but it stays in place";
  consumer_.release(consumer_.position());
  EXPECT_TRUE(send(producer_, record));
}

TEST_F(SharedRingTest, RecordsAcrossTheEndAreInOnePiece) {
  std::string record(5000, ' ');
  for (int round = 0; round < 100; ++round) {
    std::ranges::fill(record, static_cast<char>('a' + round % 26));
    ASSERT_TRUE(send(producer_, record));
    ASSERT_EQ(text_of(consumer_.next()), record) << round;
    consumer_.release(consumer_.position());
  }
}

TEST_F(SharedRingTest, ASleeperIsWokenOnceAndOnlyThen) {
  ASSERT_TRUE(send(producer_, "awake"));
  EXPECT_FALSE(producer_.must_wake());
  EXPECT_FALSE(consumer_.prepare_to_sleep()) << "there is a record";
  EXPECT_FALSE(producer_.must_wake());
  (void)consumer_.next();
  EXPECT_TRUE(consumer_.prepare_to_sleep());
  ASSERT_TRUE(send(producer_, "wake up"));
  EXPECT_TRUE(producer_.must_wake());
  EXPECT_FALSE(producer_.must_wake());
}

TEST_F(SharedRingTest, FreeSpaceOfARingNeedsNoMemory) {
  const auto pages = [this] {
    struct stat status;
    EXPECT_EQ(::fstat(ours_.fd(), &status), 0);
    return status.st_blocks / 8;
  };
  std::string record(5000, 'x');
  for (std::size_t sent = 0; sent < 3 * kCapacity; sent += record.size()) {
    ASSERT_TRUE(send(producer_, record));
    ASSERT_EQ(text_of(consumer_.next()), record);
    consumer_.release(consumer_.position());
  }
  ASSERT_GE(pages(), static_cast<long>(kCapacity / 4096));
  // Two records wait. The consumer reads one.
  ASSERT_TRUE(send(producer_, record) && send(producer_, "behind it"));
  ASSERT_EQ(text_of(consumer_.next()), record);
  producer_.free_pages();
  EXPECT_LE(pages(), 4) << "indices, and two records";
  EXPECT_EQ(text_of(consumer_.next()), "behind it");
  consumer_.release(consumer_.position());
  for (std::size_t sent = 0; sent < 3 * kCapacity; sent += record.size()) {
    ASSERT_TRUE(send(producer_, record));
    ASSERT_EQ(text_of(consumer_.next()), record);
    consumer_.release(consumer_.position());
  }
}

TEST_F(SharedRingTest, NothingIsLostBetweenThreads) {
  constexpr std::uint32_t kRecords = 100'000;
  std::thread writer([&] {
    for (std::uint32_t i = 0; i < kRecords;) {
      const auto room = producer_.reserve(4 + i % 100);
      if (room.empty()) {
        std::this_thread::yield();
        continue;
      }
      std::memcpy(room.data(), &i, sizeof i);
      producer_.publish();
      ++i;
    }
  });
  std::uint32_t expected = 0;
  while (expected != kRecords) {
    const auto record = consumer_.next();
    if (record.empty()) {
      std::this_thread::yield();
      continue;
    }
    std::uint32_t number;
    std::memcpy(&number, record.data(), sizeof number);
    if (number != expected || record.size() != 4 + expected % 100) break;
    ++expected;
    consumer_.release(consumer_.position());
  }
  EXPECT_EQ(expected, kRecords);
  consumer_.release(consumer_.position());
  writer.join();
}

TEST_F(SharedRingTest, AProducerThatClaimsMoreThanTheRingHoldsIsBroken) {
  poke(kWritten, std::uint64_t{kCapacity + 8});
  EXPECT_TRUE(consumer_.next().empty());
  EXPECT_TRUE(consumer_.broken());
}

TEST_F(SharedRingTest, AProducerThatClaimsWhatIsNotReleasedIsBroken) {
  const std::string record(SharedRing::kRecordMax, 'x');
  while (send(producer_, record)) {
  }
  while (!consumer_.next().empty()) {
  }
  // Up to 16 bytes into the first record, which has been read but not released.
  const auto end = consumer_.position();
  poke(kData + end, static_cast<std::uint32_t>(kCapacity + 16 - end - 8));
  poke(kWritten, std::uint64_t{kCapacity + 16});
  EXPECT_TRUE(consumer_.next().empty());
  EXPECT_TRUE(consumer_.broken());
}

TEST_F(SharedRingTest, AProducerThatGoesBackIsBroken) {
  ASSERT_TRUE(send(producer_, "one"));
  EXPECT_EQ(text_of(consumer_.next()), "one");
  poke(kWritten, std::uint64_t{8});
  EXPECT_TRUE(consumer_.next().empty());
  EXPECT_TRUE(consumer_.broken());
}

TEST_F(SharedRingTest, AnIndexInsideOfAHeadIsBroken) {
  poke(kWritten, std::uint64_t{12});
  EXPECT_TRUE(consumer_.next().empty());
  EXPECT_TRUE(consumer_.broken());
}

TEST_F(SharedRingTest, ALengthBeyondWhatWasWrittenIsBroken) {
  ASSERT_TRUE(send(producer_, "four"));
  poke(kData, std::uint32_t{9});
  EXPECT_TRUE(consumer_.next().empty());
  EXPECT_TRUE(consumer_.broken());
}

TEST_F(SharedRingTest, ALengthOfZeroIsBroken) {
  ASSERT_TRUE(send(producer_, "four"));
  poke(kData, std::uint32_t{0});
  EXPECT_TRUE(consumer_.next().empty());
  EXPECT_TRUE(consumer_.broken());
}

TEST_F(SharedRingTest, ALengthAboveTheLargestRecordIsBroken) {
  poke(kData, std::uint32_t{SharedRing::kRecordMax + 1});
  poke(kWritten, std::uint64_t{kCapacity});
  EXPECT_TRUE(consumer_.next().empty());
  EXPECT_TRUE(consumer_.broken());
  EXPECT_TRUE(consumer_.prepare_to_sleep()) << "nothing will come of it";
}

TEST_F(SharedRingTest, AConsumerThatClaimsMoreThanWasWrittenIsBroken) {
  const std::string record(SharedRing::kRecordMax, 'x');
  while (send(producer_, record)) {
  }
  poke(kRead, std::uint64_t{2 * kCapacity});
  EXPECT_FALSE(send(producer_, record));
  EXPECT_TRUE(producer_.broken());
}

TEST_F(SharedRingTest, AConsumerThatGoesBackIsBroken) {
  const std::string record(SharedRing::kRecordMax, 'x');
  const auto fill = [&] {
    while (send(producer_, record)) {
    }
  };
  fill();
  (void)consumer_.next();
  consumer_.release(consumer_.position());
  fill();
  poke(kRead, std::uint64_t{0});
  EXPECT_FALSE(send(producer_, record));
  EXPECT_TRUE(producer_.broken());
}

TEST_F(SharedRingTest, TheSizeOfTheMemoryCannotBeChanged) {
  EXPECT_NE(::ftruncate(ours_.fd(), 0), 0);
  EXPECT_NE(::ftruncate(ours_.fd(), 2 * kCapacity), 0);
}

TEST(SharedRingAttach, TakesNoFileWhoseSizeCouldChange) {
  const int fd = ::memfd_create("ring", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(::ftruncate(fd, 4096 + kCapacity), 0);
  EXPECT_FALSE(SharedRing::attach(fd));
  ASSERT_EQ(::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
  EXPECT_TRUE(SharedRing::attach(fd));
  ::close(fd);
}

TEST(SharedRingAttach, TakesNoFileOfAnotherSize) {
  for (const auto size : {std::size_t{4096}, 4096 + kCapacity / 2, 4096 + kCapacity + 4096}) {
    const int fd = ::memfd_create("ring", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ASSERT_EQ(::ftruncate(fd, static_cast<off_t>(size)), 0);
    ASSERT_EQ(::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
    EXPECT_FALSE(SharedRing::attach(fd)) << size;
    ::close(fd);
  }
}

}  // namespace
}  // namespace softhca::os
