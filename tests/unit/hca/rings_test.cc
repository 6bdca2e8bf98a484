#include <gtest/gtest.h>

#include <array>
#include <utility>
#include <vector>

#include "hca/doorbell_record.h"
#include "hca/published_ring.h"
#include "hca/queue_host.h"
#include "hca/work_ring.h"

namespace softhca::hca {
namespace {

class RingTest : public QueueHost {
 protected:
  static constexpr pcie::Iova kRecord = kBase + 8 * kPage;

  void post(std::uint32_t counter) { util::store_be32(at(kRecord), counter); }
  static std::array<std::byte, 16> entry(unsigned mark) {
    std::array<std::byte, 16> bytes{};
    bytes[0] = std::byte(mark);
    bytes[15] = std::byte(mark);
    return bytes;
  }
  DoorbellRecord record{dma, kRecord};
};

// DoorbellRecord -------------------------------------------------------------------------------

TEST_F(RingTest, ARecordHasTwoBigEndianDwords) {
  util::store_be32(at(kRecord), 0x11223344);
  util::store_be32(at(kRecord + 4), 0x55667788);
  EXPECT_EQ(record.read(0), 0x11223344u);
  EXPECT_EQ(record.read(1), 0x55667788u);
}

TEST_F(RingTest, ARecordWithoutMemoryReportsNothing) {
  EXPECT_EQ(DoorbellRecord().read(0), std::nullopt);
  EXPECT_TRUE(record.read(0));
  dma.unmap_all();
  EXPECT_EQ(record.read(0), std::nullopt);
}

TEST_F(RingTest, ARecordMayLieBehindAPeerOrUnaligned) {
  util::store_be32(at(kRecord + 2), 0x11223344);
  util::store_be32(at(kRecord + 6), 0x55667788);
  const auto expect_both = [&] {
    DoorbellRecord unaligned(dma, kRecord + 2);
    EXPECT_EQ(unaligned.read(0), 0x11223344u);
    EXPECT_EQ(unaligned.read(1), 0x55667788u);
  };
  expect_both();
  make_remote();
  expect_both();
}

// WorkRing -------------------------------------------------------------------------------------

TEST_F(RingTest, OnlyTheLow16BitsOfAPostedCounterCount) {
  WorkRing ring({.log_stride = 4, .log_count = 2});
  post(0xABC0003);
  EXPECT_EQ(ring.available(record), 3u);
}

TEST_F(RingTest, ACounterFurtherAheadThanTheRingIsLongIsNone) {
  WorkRing ring({.log_stride = 4, .log_count = 2});
  post(5);
  EXPECT_EQ(ring.available(record), std::nullopt);
  EXPECT_FALSE(ring.has_news(record));
  post(4);
  EXPECT_TRUE(ring.has_news(record));
  EXPECT_EQ(ring.available(record), 4u);
  EXPECT_FALSE(ring.has_news(record));
}

TEST_F(RingTest, TheRecordIsReadOnlyWhenAllThatIsKnownIsConsumed) {
  WorkRing ring({.log_stride = 4, .log_count = 2});
  post(1);
  EXPECT_EQ(ring.available(record), 1u);
  post(2);
  EXPECT_EQ(ring.available(record), 1u);
  EXPECT_EQ(ring.refresh(record), 2u);
  ring.consume(2);
  EXPECT_EQ(ring.known(), 0u);
  post(3);
  EXPECT_EQ(ring.available(record), 1u);
}

TEST_F(RingTest, ADisregardedCounterIsZeroUntilItChangesOrTheDoorbellRings) {
  WorkRing ring({.log_stride = 4, .log_count = 2});
  post(2);
  ring.disregard(record);
  EXPECT_FALSE(ring.has_news(record));
  EXPECT_EQ(ring.available(record), 0u);
  post(0);
  EXPECT_EQ(ring.refresh(record), 0u);
  post(2);
  EXPECT_TRUE(ring.has_news(record));
  EXPECT_EQ(ring.refresh(record), 2u);

  ring.reset();
  ring.disregard(record);
  EXPECT_EQ(ring.available(record), 0u);
  ring.look_again();
  EXPECT_TRUE(ring.look(record));
  EXPECT_EQ(ring.known(), 0u);
  ring.handle_doorbell();
  EXPECT_TRUE(ring.look(record));
  EXPECT_EQ(ring.known(), 2u);
}

TEST_F(RingTest, CountersWrapAround) {
  WorkRing ring({.log_stride = 4, .log_count = 15});
  for (unsigned lap = 1; lap <= 4; ++lap) {
    post(lap << 15);
    ASSERT_EQ(ring.available(record), 1u << 15);
    ring.consume(1u << 15);
  }
  EXPECT_EQ(ring.consumed(), 0u);
  EXPECT_EQ(ring.available(record), 0u);
}

TEST_F(RingTest, AnEntryThatReachesTheEndGoesOnAtTheBegin) {
  auto queue = pages({kBase}, 0, kPage);
  WorkRing ring({.offset = 64, .log_stride = 4, .log_count = 2});
  *at(kBase) = std::byte{0xEE};  // belongs to another ring in the same memory
  for (unsigned i = 0; i < 4; ++i) *at(kBase + 64 + 16 * i) = std::byte(i + 1);
  post(3);
  ASSERT_EQ(ring.available(record), 3u);
  ring.consume(2);
  std::array<std::byte, 48> out{};
  EXPECT_TRUE(ring.read(queue, 0, out));
  EXPECT_EQ(out[0], std::byte{3});
  EXPECT_EQ(out[16], std::byte{4});
  EXPECT_EQ(out[32], std::byte{1});
  EXPECT_TRUE(ring.read(queue, 1, std::span(out).first(16)));
  EXPECT_EQ(out[0], std::byte{4});
  dma.unmap_all();
  EXPECT_FALSE(ring.read(queue, 0, out));
}

TEST_F(RingTest, SeveralEntriesAreInOnePieceUnlessTheyWrap) {
  auto queue = pages({kBase}, 0, kPage);
  WorkRing ring({.offset = 64, .log_stride = 4, .log_count = 2});
  post(4);
  ASSERT_EQ(ring.available(record), 4u);
  for (std::uint32_t first = 0; first != 4; ++first) {
    for (std::uint32_t length = 16; length <= 64; length += 8) {
      const bool fits = 16 * first + length <= 64;
      EXPECT_EQ(ring.entries_at_next(queue, length), fits ? at(kBase + 64 + 16 * first) : nullptr)
          << first << ", " << length;
    }
    ring.consume(1);
  }
}

TEST_F(RingTest, TheRecordOfAQueueWithADoorbellIsReadWhenThatHasRung) {
  WorkRing ring({.log_stride = 4, .log_count = 2});
  post(1);
  EXPECT_TRUE(ring.look(record));
  EXPECT_EQ(ring.known(), 0u) << "before the first doorbell nothing is known";
  ring.handle_doorbell();
  EXPECT_TRUE(ring.look(record));
  EXPECT_EQ(ring.known(), 1u);
  post(3);
  EXPECT_TRUE(ring.look(record));
  EXPECT_EQ(ring.known(), 1u);
  ring.handle_doorbell();
  EXPECT_TRUE(ring.look(record));
  EXPECT_EQ(ring.known(), 3u);
  ring.handle_doorbell();
  post(100);  // exceeds the length of the ring
  EXPECT_FALSE(ring.look(record));
  EXPECT_FALSE(ring.look(record)) << "and again, until it is right";
  post(4);
  EXPECT_TRUE(ring.look(record));
  EXPECT_EQ(ring.known(), 4u);
  ring.reset();
  EXPECT_TRUE(ring.look(record));
  EXPECT_EQ(ring.known(), 0u) << "the record is that of the queue's earlier life";
  post(2);
  ring.handle_doorbell();
  EXPECT_TRUE(ring.look(record));
  EXPECT_EQ(ring.known(), 2u);
}

TEST_F(RingTest, AResetRingBeginsAtZero) {
  WorkRing ring({.log_stride = 4, .log_count = 2});
  post(3);
  EXPECT_EQ(ring.available(record), 3u);
  ring.consume(3);
  ring.reset();
  post(1);
  EXPECT_EQ(ring.available(record), 1u);
  EXPECT_EQ(ring.consumed(), 0u);
}

// WorkChain ------------------------------------------------------------------------------------

TEST_F(RingTest, AChainGoesFromEntryToTheOneItNames) {
  auto queue = pages({kBase}, 0, kPage);
  WorkChain chain(3, 4, 0);
  for (unsigned i = 0; i < 8; ++i) *at(kBase + 16 * i) = std::byte(0x10 + i);
  post(2);
  ASSERT_EQ(chain.available(record), 2u);
  std::array<std::byte, 16> out{};
  EXPECT_TRUE(chain.read(queue, out));
  EXPECT_EQ(out[0], std::byte{0x10});
  chain.advance(5);
  EXPECT_EQ(chain.next(), 5u);
  EXPECT_TRUE(chain.read(queue, out));
  EXPECT_EQ(out[0], std::byte{0x15});
  chain.advance(0);
  EXPECT_EQ(chain.known(), 0u);
  EXPECT_EQ(chain.consumed(), 2u);
}

// PublishedRing --------------------------------------------------------------------------------

TEST_F(RingTest, EntriesArePublishedInTurnAndTheLapTurnsOver) {
  PublishedRing ring({.log_count = 1, .stride = 16}, pages({kBase}, 0, kPage));
  for (unsigned i = 0; i < 6; ++i) {
    EXPECT_EQ(ring.lap(), i / 2 % 2);
    ASSERT_FALSE(ring.full());
    EXPECT_TRUE(ring.publish(entry(i + 1)));
    EXPECT_EQ(*at(kBase + 16 * (i % 2)), std::byte(i + 1));
    ring.set_consumer(i + 1);
  }
  EXPECT_EQ(ring.producer(), 6u);
}

TEST_F(RingTest, ARingIsFullUntilSoftwareHasRead) {
  PublishedRing ring({.log_count = 1, .stride = 16}, pages({kBase}, 0, kPage));
  EXPECT_TRUE(ring.publish(entry(1)));
  EXPECT_FALSE(ring.full());
  EXPECT_TRUE(ring.publish(entry(2)));
  EXPECT_TRUE(ring.full());
  ring.set_consumer(1);
  EXPECT_FALSE(ring.full());
}

TEST_F(RingTest, ARingThatIgnoresOverrunsIsNeverFull) {
  PublishedRing ring({.log_count = 0, .stride = 16, .overrun_ignore = true},
                     pages({kBase}, 0, kPage));
  for (unsigned i = 1; i < 4; ++i) {
    EXPECT_FALSE(ring.full());
    EXPECT_TRUE(ring.publish(entry(i)));
  }
  EXPECT_EQ(*at(kBase), std::byte{3});
}

TEST_F(RingTest, ACollapsedRingHasOnePlaceAndItsCountersAndLapsAll) {
  PublishedRing ring({.log_count = 1, .stride = 16, .collapsed = true}, pages({kBase}, 0, kPage));
  for (unsigned i = 1; i < 4; ++i) {
    EXPECT_FALSE(ring.full());
    EXPECT_TRUE(ring.publish(entry(i)));
    EXPECT_EQ(*at(kBase), std::byte(i));
  }
  EXPECT_EQ(*at(kBase + 16), std::byte{0});
  EXPECT_EQ(ring.producer(), 3u);
  EXPECT_EQ(ring.lap(), 1u);
}

TEST_F(RingTest, AnEntryStandsAtTheEndOfItsStride) {
  PublishedRing ring({.log_count = 1, .stride = 64}, pages({kBase}, 0, kPage));
  EXPECT_TRUE(ring.publish(entry(9)));
  EXPECT_EQ(*at(kBase), std::byte{0});
  EXPECT_EQ(*at(kBase + 48), std::byte{9});
}

TEST_F(RingTest, CountersHaveTheBitsOfTheDocument) {
  PublishedRing ring({.log_count = 1, .stride = 16, .counter_bits = 3}, pages({kBase}, 0, kPage));
  for (unsigned i = 1; i <= 8; ++i) {
    EXPECT_TRUE(ring.publish(entry(i)));
    ring.set_consumer(i);
  }
  EXPECT_EQ(ring.producer(), 0u);
  EXPECT_EQ(ring.consumer(), 0u);
  EXPECT_FALSE(ring.full());
  EXPECT_EQ(ring.distance(1, 7), 2);
  EXPECT_EQ(ring.distance(7, 1), -2);
}

TEST_F(RingTest, WithoutMemoryNothingIsPublished) {
  PublishedRing ring({.log_count = 1, .stride = 16}, pages({kBase}, 0, kPage));
  dma.unmap_all();
  EXPECT_FALSE(ring.publish(entry(1)));
  EXPECT_EQ(ring.producer(), 0u);
}

// Two rings have the same entries. One is written by publish() alone, at another page.
TEST_F(RingTest, PublishFastDoesWhatPublishDoesOrNothing) {
  constexpr PublishedRing::Geometry kGeometry{.log_count = 2, .stride = 64, .collapsed = false};
  std::array rings{PublishedRing(kGeometry, pages({kBase}, 0, kPage)),
                   PublishedRing(kGeometry, pages({kBase + kPage}, 0, kPage))};
  const auto bytes_of = [&](unsigned which) {
    const auto* const first = at(kBase + which * kPage);
    return std::vector(first, first + kPage);
  };
  unsigned fast = 0;
  for (unsigned i = 1; i != 40; ++i) {
    if (i == 20) make_remote();
    if (i == 30) dma.unmap_all();
    const auto before = std::pair(rings[0].producer(), bytes_of(0));
    bool written = rings[0].publish_fast(std::span<const std::byte, 16>(entry(i)));
    if (written) {
      ++fast;
    } else {
      ASSERT_EQ(std::pair(rings[0].producer(), bytes_of(0)), before) << i;
      written = rings[0].publish(entry(i));
    }
    ASSERT_EQ(written, rings[1].publish(entry(i))) << i;
    ASSERT_EQ(rings[0].producer(), rings[1].producer()) << i;
    ASSERT_EQ(bytes_of(0), bytes_of(1)) << i;
  }
  EXPECT_EQ(fast, 19u);
}

TEST_F(RingTest, BehindAPeerTheOwnersBytesAreWrittenLast) {
  make_remote();
  PublishedRing ring({.log_count = 1, .stride = 16}, pages({kBase}, 0, kPage));
  EXPECT_TRUE(ring.publish(entry(7)));
  EXPECT_EQ(peer.writes, (std::vector<std::size_t>{12, 4}));
  EXPECT_EQ(*at(kBase + 15), std::byte{7});
}

}  // namespace
}  // namespace softhca::hca
