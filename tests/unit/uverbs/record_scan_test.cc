// Doorbells found by scanning doorbell records (kernel interface 12): rules D1, D2, D4, A1 and
// A2.
#include "uverbs/record_scan.h"

#include <gtest/gtest.h>

#include <vector>

#include "util/endian.h"

namespace softhca::uverbs {
namespace {

/// Records the writes to doorbell pages.
class NotingHost final : public driver::Host {
 public:
  struct Write {
    std::uint64_t offset;
    std::uint32_t first, second;
    friend bool operator==(const Write&, const Write&) = default;
  };
  void read_config(std::uint32_t, std::span<std::byte>) override {}
  void write_config(std::uint32_t, std::span<const std::byte>) override {}
  void read_bar(unsigned, std::uint64_t, std::span<std::byte>) override {}
  void write_bar(unsigned, std::uint64_t offset, std::span<const std::byte> in) override {
    writes.push_back({offset, util::load_be32(in.data()), util::load_be32(in.data() + 4)});
  }
  util::Result<driver::DmaRegion> allocate(std::size_t) override { return util::fail("no"); }
  void free(const driver::DmaRegion&) override {}
  util::Result<driver::DmaRegion> map(std::span<std::byte>) override { return util::fail("no"); }
  void unmap(const driver::DmaRegion&) override {}
  util::Result<void> enable_interrupts(unsigned) override { return {}; }
  void disable_interrupts() override {}
  std::uint64_t interrupts(unsigned) const override { return 0; }
  void progress() override {}
  util::Time now() const override { return {}; }

  std::vector<Write> writes;
};

std::uint32_t be(std::uint32_t value) { return __builtin_bswap32(value); }

TEST(RecordScan, ASendQueueIsRungForOnceWhenItsCounterMoves) {
  NotingHost host;
  RecordScan scan(host);
  std::uint32_t record = 0;
  EXPECT_TRUE(scan.empty());
  scan.add_send_queue(0x11, 3, &record);
  EXPECT_FALSE(scan.empty());
  EXPECT_FALSE(scan.scan());
  record = be(128);
  EXPECT_TRUE(scan.scan());
  EXPECT_FALSE(scan.scan());
  ASSERT_EQ(host.writes.size(), 1u);
  EXPECT_EQ(host.writes[0].offset, 3 * 4096u + 0x800);
  EXPECT_EQ(host.writes[0].second, 0x1100u);
}

// A store into the record of a destroyed queue is not a doorbell.
TEST(RecordScan, ARecordIsNotLookedAtAnyMore) {
  NotingHost host;
  RecordScan scan(host);
  std::uint32_t record = be(5);
  scan.add_send_queue(0x11, 3, &record);
  scan.remove_send_queue(0x11);
  EXPECT_FALSE(scan.scan());
  // After RESET, the counter begins at 0 again.
  scan.add_send_queue(0x11, 3, &record);
  EXPECT_TRUE(scan.scan());
}

// UCX leaves the old counter in the record until its next post, which may have the same counter.
TEST(RecordScan, TheRecordOfAQueueThatIsResetCountsFromZero) {
  NotingHost host;
  RecordScan scan(host);
  std::uint32_t record = 0;
  scan.add_send_queue(0x11, 3, &record);
  record = be(5);
  EXPECT_TRUE(scan.scan());
  scan.reset_send_queue(0x11, &record);
  scan.add_send_queue(0x11, 3, &record);
  EXPECT_FALSE(scan.scan()) << "nothing is posted";
  record = be(5);
  EXPECT_TRUE(scan.scan());
}

// "The first arm of a CQ is the word 0 and the fresh record is 0": the sentinel tells them apart.
TEST(RecordScan, TheFirstArmOfACqIsSeenThoughItIsZero) {
  NotingHost host;
  RecordScan scan(host);
  std::uint32_t arm = 0;
  scan.add_completion_queue(9, 2, &arm);
  EXPECT_EQ(arm, 0xffffffff);
  EXPECT_FALSE(scan.scan());
  arm = 0;
  EXPECT_TRUE(scan.scan());
  EXPECT_EQ(host.writes, (std::vector<NotingHost::Write>{{2 * 4096 + 0x20, 0, 9}}));
  EXPECT_FALSE(scan.scan());
  arm = be(0x11000007);
  EXPECT_TRUE(scan.scan());
  EXPECT_EQ(host.writes.back().first, 0x11000007u);
  scan.remove_completion_queue(9);
  arm = 0;
  EXPECT_FALSE(scan.scan());
}

}  // namespace
}  // namespace softhca::uverbs
