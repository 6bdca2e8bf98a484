#include "connectx/completion_queue.h"

#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <vector>

#include "connectx/event_queue.h"
#include "pcie/dma_space.h"
#include "util/endian.h"

namespace softhca::connectx {
namespace {

/// A CQ of 8 entries and its EQ of 64 in memory of the test.
class CompletionQueueTest : public testing::Test, private pcie::InterruptSink {
 protected:
  static constexpr pcie::Iova kBase = 0x10000;
  static constexpr pcie::Iova kRecord = kBase + 0x3000;
  static constexpr std::uint32_t kSolicitedOnly = 1u << 24;

  CompletionQueueTest() {
    EXPECT_TRUE(dma_.map(kBase, memory_.size(), memory_.data(), pcie::DmaAccess::kReadWrite));
    msix_.set_sink(this);
    EventQueue::Attributes eq;
    eq.log_size = 6;
    eq.buffer = buffer(kBase, 64 * kEqeSize);
    eqs_.create(std::move(eq))->handle_doorbell(0, false);
    CompletionQueue::Attributes cq;
    cq.log_size = 3;
    cq.buffer = buffer(kBase + 0x2000, 8 * CompletionQueue::kCqeSize);
    cq.record = DoorbellRecord(dma_, kRecord);
    cq_.emplace(1, std::move(cq), eqs_);
  }

  QueueBuffer buffer(pcie::Iova at, std::uint64_t size) {
    std::vector<std::byte> pas;
    for (std::uint64_t done = 0; done < size; done += 4096) {
      pas.resize(pas.size() + 8);
      util::store_be64(pas.data() + pas.size() - 8, at + done);
    }
    return *QueueBuffer::from_pas(dma_, pas, 12, 0, size);
  }
  bool complete(bool solicited = false) {
    std::array<std::byte, CompletionQueue::kCqeSize> cqe{};
    return cq_->write(cqe, solicited);
  }
  void consume(std::uint32_t index) { util::store_be32(&memory_[0x3000], index); }
  std::uint32_t events() { return eqs_.find(0)->producer(); }

  void raise(std::uint16_t) override {}

  std::vector<std::byte> memory_ = std::vector<std::byte>(0x4000);
  pcie::DmaSpace dma_;
  pcie::Msix msix_{{.vectors = 1, .bar = 0, .table_offset = 0, .pba_offset = 0x800}};
  EventQueues eqs_{msix_};
  std::optional<CompletionQueue> cq_;
};

TEST_F(CompletionQueueTest, AnArmedCqReportsTheNextCompletionOnce) {
  cq_->handle_arm(0);
  complete();
  complete();
  EXPECT_EQ(events(), 1u);
}

TEST_F(CompletionQueueTest, AnUnarmedCqReportsNothing) {
  complete();
  EXPECT_EQ(events(), 0u);
}

// PRM 7.12.4: "If new CQEs are posted to the CQ after the reporting of a completion event and these
// CQEs are not yet consumed, then an event will be generated immediately".
TEST_F(CompletionQueueTest, ACqeAfterTheEventIsReportedWhenTheCqIsArmed) {
  cq_->handle_arm(0);
  complete();
  complete();
  cq_->handle_arm(1);
  EXPECT_EQ(events(), 2u);
}

// The same sentence: a CQE that was there when the event was reported does not make another.
TEST_F(CompletionQueueTest, ACqeThatWasReportedIsNotReportedAgainIfSoftwareArmsBeforeItPolls) {
  cq_->handle_arm(0);
  complete();
  EXPECT_EQ(events(), 1u);
  cq_->handle_arm(0);
  EXPECT_EQ(events(), 1u);
  complete();
  EXPECT_EQ(events(), 2u);
}

TEST_F(CompletionQueueTest, AConsumedCqeIsNotReported) {
  complete();
  complete();
  cq_->handle_arm(2);
  EXPECT_EQ(events(), 0u);
}

TEST_F(CompletionQueueTest, ArmedForSolicitedEventsItPassesOverOthers) {
  cq_->handle_arm(kSolicitedOnly);
  complete(false);
  EXPECT_EQ(events(), 0u);
  complete(true);
  EXPECT_EQ(events(), 1u);
}

// PRM Table 71: ARM_SOLICITED after ARM_NEXT changes nothing.
TEST_F(CompletionQueueTest, ArmSolicitedDoesNotWeakenArmNext) {
  cq_->handle_arm(0);
  cq_->handle_arm(kSolicitedOnly);
  complete(false);
  EXPECT_EQ(events(), 1u);
}

TEST_F(CompletionQueueTest, TheOwnerBitTurnsOverWithEachLap) {
  for (std::uint32_t i = 0; i < 8; ++i) EXPECT_TRUE(complete());
  EXPECT_EQ(memory_[0x2000 + 63] & std::byte{1}, std::byte{0});
  consume(8);
  EXPECT_TRUE(complete());
  EXPECT_EQ(memory_[0x2000 + 63] & std::byte{1}, std::byte{1});
}

// PRM 7.12.5: "a CQ overrun is checked while posting a completion".
TEST_F(CompletionQueueTest, AnOverrunFailsTheCqForGood) {
  for (std::uint32_t i = 0; i < 8; ++i) EXPECT_TRUE(complete());
  EXPECT_FALSE(complete());
  EXPECT_TRUE(cq_->failed());
  consume(8);
  EXPECT_FALSE(complete());
}

TEST_F(CompletionQueueTest, ACqWithoutMemoryFailsInsteadOfWriting) {
  dma_.unmap_all();
  EXPECT_FALSE(complete());
  EXPECT_TRUE(cq_->failed());
}

}  // namespace
}  // namespace softhca::connectx
