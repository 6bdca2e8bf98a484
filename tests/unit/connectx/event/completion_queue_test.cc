#include "connectx/event/completion_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "connectx/event/event_queue.h"
#include "pcie/dma_space.h"
#include "util/endian.h"

namespace softhca::connectx {
namespace {

using namespace std::chrono_literals;

/// A CQ of 8 entries and its EQ of 64, in the test's memory.
class CompletionQueueTest : public testing::Test, private pcie::InterruptSink {
 protected:
  static constexpr pcie::Iova kBase = 0x10000;
  static constexpr pcie::Iova kRecord = kBase + 0x3000;
  static constexpr std::uint32_t kSolicitedOnly = 1u << 24;
  static constexpr Cqn kCqn{1};

  CompletionQueueTest() {
    EXPECT_TRUE(dma_.map(kBase, memory_.size(), memory_.data(), pcie::DmaAccess::kReadWrite));
    msix_.set_sink(this);
    EventQueue::Attributes eq;
    eq.log_size = 6;
    eq.queue = queue(kBase, 64 * kEqeSize, 0);
    eqs_.create(std::move(eq))->handle_doorbell(0, false);
    CompletionQueue::Attributes cq;
    cq.log_size = 3;
    cq.queue = queue(kBase + 0x2000, 8 * CompletionQueue::kCqeSize, kRecord);
    cq_.emplace(kCqn, std::move(cq), eqs_, moderation_);
  }

  MappedQueue queue(pcie::Iova at, std::uint64_t size, pcie::Iova record) {
    std::vector<std::byte> pas;
    for (std::uint64_t done = 0; done < size; done += 4096) {
      pas.resize(pas.size() + 8);
      util::store_be64(pas.data() + pas.size() - 8, at + done);
    }
    return *QueueMapper(dma_, translations_, user_memories_, work_)
                .map({.size = size, .pas = pas, .dbr_addr = record}, "");
  }
  bool complete(bool solicited = false) {
    std::array<std::byte, CompletionQueue::kCqeSize> cqe{};
    return cq_->write(cqe, solicited);
  }
  /// Arms as software that has handled all events does: cmd_sn counts them (PRM Table 70).
  void arm(std::uint32_t consumer, std::uint32_t command = 0) {
    cq_->handle_arm(cmd_sn(events()) | command | consumer);
  }
  static std::uint32_t cmd_sn(std::uint32_t number) { return (number & 3) << 28; }
  void consume(std::uint32_t index) { util::store_be32(&memory_[0x3000], index); }
  std::uint32_t events() { return eqs_.find(Eqn(0))->ring().producer(); }

  void raise(std::uint16_t) override {}

  std::vector<std::byte> memory_ = std::vector<std::byte>(0x4000);
  pcie::DmaSpace dma_;
  util::Budget translations_{100};
  UserMemories user_memories_{translations_, Limits{.log_max_umem = 0}};
  util::WorkBudget work_{1'000'000};
  pcie::Msix msix_{{.vectors = 1, .bar = 0, .table_offset = 0, .pba_offset = 0x800}};
  Health health_;
  util::Notes notes_{"test"};
  EventQueues eqs_{msix_, Limits{}, health_, notes_};
  EventModeration moderation_;
  std::optional<CompletionQueue> cq_;
};

/// A CQ with a period of 10 us and a count of 3. Its last event was just reported.
class ModeratedCqTest : public CompletionQueueTest {
 protected:
  ModeratedCqTest() {
    pass(1h);
    cq_->set_moderation(10, 3);
    complete_and_consume();
    EXPECT_EQ(take_events(), 1u) << "the last event was long ago";
  }

  void pass(util::Duration time) {
    now_ += time;
    util::WorkBudget work(100'000);
    moderation_.begin_turn(now_);
    moderation_.report_due(work, [this](Cqn cqn) {
      EXPECT_EQ(cqn, kCqn);
      cq_->report_held_event();
    });
  }
  /// Adds a completion to an armed CQ and consumes it.
  void complete_and_consume() {
    arm(cq_->ring().producer());
    complete();
    consume(cq_->ring().producer());
  }
  std::uint32_t take_events() { return events() - std::exchange(taken_, events()); }

  util::Time now_{};
  std::uint32_t taken_ = 0;
};

// PRM 7.12: what is in the ring does not depend on the path that a CQE took. A solicited CQE takes
// the slow path.
TEST_F(CompletionQueueTest, TheFastPathWritesWhatTheSlowPathWrites) {
  constexpr std::size_t kRing = 8 * CompletionQueue::kCqeSize;
  CompletionQueue::Attributes attributes;
  attributes.log_size = 3;
  attributes.queue = queue(kBase + 0x1000, kRing, kRecord + 8);
  CompletionQueue slow(Cqn{2}, std::move(attributes), eqs_, moderation_);
  std::mt19937 random(1);
  for (std::uint32_t i = 0; i != 200; ++i) {
    std::array<std::byte, CompletionQueue::kCqeSize> cqe{};
    for (auto& byte : std::span(cqe).first<CompletionQueue::kCqeSize - 1>()) {
      byte = std::byte(random());
    }
    auto copy = cqe;
    ASSERT_TRUE(cq_->write(cqe, false)) << i;
    ASSERT_TRUE(slow.write(copy, true)) << i;
    ASSERT_TRUE(std::equal(&memory_[0x2000], &memory_[0x2000] + kRing, &memory_[0x1000])) << i;
    if (random() % 8 == 0) continue;
    consume(i + 1);
    util::store_be32(&memory_[0x3008], i + 1);
  }
}

TEST_F(CompletionQueueTest, AnArmedCqReportsTheNextCompletionOnce) {
  arm(0);
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
  arm(0);
  complete();
  complete();
  arm(1);
  EXPECT_EQ(events(), 2u);
}

// The same sentence: a CQE that existed when the event was reported causes no other event.
TEST_F(CompletionQueueTest, ACqeThatWasReportedIsNotReportedAgainIfSoftwareArmsBeforeItPolls) {
  arm(0);
  complete();
  EXPECT_EQ(events(), 1u);
  arm(0);
  EXPECT_EQ(events(), 1u);
  complete();
  EXPECT_EQ(events(), 2u);
}

// PRM 7.12.4: "no further events are generated before a new request for notification with a higher
// value of cmd_sn is executed".
TEST_F(CompletionQueueTest, ARequestThatHadItsEventAsksForNoOther) {
  for (std::uint32_t sn = 0; sn < 6; ++sn) {
    const auto request = cmd_sn(sn) | cq_->ring().producer();
    cq_->handle_arm(request);
    complete();
    consume(cq_->ring().producer());
    EXPECT_EQ(events(), sn + 1);
    // Software has not yet handled the event, and arms again.
    cq_->handle_arm(cmd_sn(sn) | cq_->ring().producer());
    cq_->handle_arm(cmd_sn(sn) | kSolicitedOnly | cq_->ring().producer());
    complete(true);
    consume(cq_->ring().producer());
    EXPECT_EQ(events(), sn + 1);
  }
}

TEST_F(CompletionQueueTest, ARequestIsRepeatedWithItsNumberUntilItHasItsEvent) {
  cq_->handle_arm(cmd_sn(0) | kSolicitedOnly);
  complete();
  EXPECT_EQ(events(), 0u);
  cq_->handle_arm(cmd_sn(0) | 1);
  complete();
  EXPECT_EQ(events(), 1u);
}

TEST_F(CompletionQueueTest, AConsumedCqeIsNotReported) {
  complete();
  complete();
  arm(2);
  EXPECT_EQ(events(), 0u);
}

TEST_F(CompletionQueueTest, ArmedForSolicitedEventsItPassesOverOthers) {
  arm(0, kSolicitedOnly);
  complete(false);
  EXPECT_EQ(events(), 0u);
  complete(true);
  EXPECT_EQ(events(), 1u);
}

// PRM Table 71: ARM_SOLICITED after ARM_NEXT changes nothing.
TEST_F(CompletionQueueTest, ArmSolicitedDoesNotWeakenArmNext) {
  arm(0);
  arm(0, kSolicitedOnly);
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

// PRM 7.13.14: "The cq_period timer has expired and there is a pending event for this CQ". It
// "restarts upon event generation" (PRM Table 76, cq_period_mode 0).
TEST_F(ModeratedCqTest, APendingEventIsReportedWhenThePeriodSinceTheLastEventExpires) {
  complete_and_consume();
  EXPECT_EQ(moderation_.next(), now_ + 10us);
  pass(9us);
  EXPECT_EQ(take_events(), 0u);
  pass(1us);
  EXPECT_EQ(take_events(), 1u);
  EXPECT_EQ(moderation_.next(), util::kNever);
}

TEST_F(ModeratedCqTest, AnEventAfterThePeriodIsReportedAtOnce) {
  pass(10us);
  complete_and_consume();
  EXPECT_EQ(take_events(), 1u);
}

TEST_F(ModeratedCqTest, NoEventIsReportedForAPeriodWithoutCompletions) {
  pass(1h);
  EXPECT_EQ(take_events(), 0u);
}

// PRM 7.13.14: "The number of completions generated since the one which triggered the last event
// generation reached cq_max_count".
TEST_F(ModeratedCqTest, AnEventIsReportedWhenTheCountIsReached) {
  complete_and_consume();
  complete();
  EXPECT_EQ(take_events(), 0u);
  complete();
  EXPECT_EQ(take_events(), 1u);
  pass(1h);
  EXPECT_EQ(take_events(), 0u) << "it was reported";
}

TEST_F(ModeratedCqTest, ACqThatIsNotArmedHoldsNoEvent) {
  complete();
  complete();
  complete();
  pass(1h);
  EXPECT_EQ(take_events(), 0u);
}

TEST_F(ModeratedCqTest, APeriodOrACountOfZeroDisablesModeration) {
  for (const auto& [period, max_count] : {std::pair{0, 3}, {10, 0}}) {
    cq_->set_moderation(static_cast<std::uint16_t>(period), static_cast<std::uint16_t>(max_count));
    complete_and_consume();
    EXPECT_EQ(take_events(), 1u) << period << " us, " << max_count;
  }
}

// PRM 7.12.5: a CQ that has overrun reports no more events.
TEST_F(ModeratedCqTest, ACqThatHasFailedDoesNotReportTheEventThatItHeldBack) {
  cq_->set_moderation(10, 100);
  arm(cq_->ring().producer());
  for (std::uint32_t i = 0; i < 8; ++i) EXPECT_TRUE(complete());
  EXPECT_FALSE(complete());
  ASSERT_EQ(moderation_.next(), now_ + 10us) << "an event is held back";
  pass(10us);
  EXPECT_EQ(take_events(), 0u);
}

TEST_F(ModeratedCqTest, ACqThatIsDestroyedTakesItsEventWithIt) {
  complete_and_consume();
  cq_.reset();
  EXPECT_EQ(moderation_.next(), util::kNever);
}

}  // namespace
}  // namespace softhca::connectx
