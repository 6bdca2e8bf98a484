#include "fabric/impairment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>

#include "recorder.h"

namespace softhca::fabric {
namespace {

using std::chrono::microseconds;
using testing::ElementsAre;
using testing::IsEmpty;

class ImpairmentTest : public testing::Test {
 protected:
  /// Transmits "0", "1", ... and lets all time pass.
  std::vector<std::string> run(const Impairment::Options& options, int frames) {
    below_.texts.clear();
    Impairment impairment(below_, options);
    for (int i = 0; i != frames; ++i) {
      texts_.push_back(std::to_string(i));
      impairment.transmit(frame_of(2, 1, texts_.back()));
    }
    while (impairment.next_event() != util::kNever) {
      impairment.handle_timeout(impairment.next_event());
    }
    counters_ = impairment.counters();
    return below_.texts;
  }

  RecordingPort below_;
  std::deque<std::string> texts_;
  Impairment::Counters counters_;
};

TEST_F(ImpairmentTest, WithoutOptionsIsALink) {
  EXPECT_THAT(run({}, 3), ElementsAre("0", "1", "2"));
  Impairment impairment(below_, {});
  below_.up = false;
  EXPECT_FALSE(impairment.link_up());
  Recorder receiver;
  impairment.set_receiver(&receiver);
  EXPECT_EQ(below_.receiver, &receiver);
}

TEST_F(ImpairmentTest, TheSameSeedGivesTheSameResult) {
  const Impairment::Options options{
      .seed = 7, .loss = 0.1, .duplicate = 0.1, .reorder = 0.1, .jitter = microseconds(3)};
  const auto first = run(options, 500);
  EXPECT_EQ(run(options, 500), first);
  auto other = options;
  other.seed = 8;
  EXPECT_NE(run(other, 500), first);
}

// The value is a constant: every library must give the same sequence.
TEST_F(ImpairmentTest, ASeedMeansTheSameOnEveryPlatform) {
  EXPECT_THAT(run({.seed = 1, .loss = 0.5}, 8), ElementsAre("3", "4", "7"));
}

TEST_F(ImpairmentTest, LosesAndDuplicatesAsOftenAsAsked) {
  run({.loss = 0.2, .duplicate = 0.1}, 10000);
  EXPECT_NEAR(static_cast<double>(counters_.lost), 2000, 150);
  EXPECT_NEAR(static_cast<double>(counters_.duplicated), 800, 100);
  EXPECT_EQ(counters_.forwarded, 10000 - counters_.lost + counters_.duplicated);
}

TEST_F(ImpairmentTest, ReorderedFramesLetAFewOthersPassAndNoneIsLost) {
  auto texts = run({.reorder = 0.2, .reorder_distance = 3}, 1000);
  ASSERT_EQ(texts.size(), 1000u);
  EXPECT_FALSE(std::is_sorted(texts.begin(), texts.end(), [](const auto& a, const auto& b) {
    return std::stoi(a) < std::stoi(b);
  }));
  for (int i = 0; i != 1000; ++i) {
    EXPECT_LT(std::abs(std::stoi(texts[static_cast<std::size_t>(i)]) - i), 12);
  }
}

TEST_F(ImpairmentTest, AReorderedLastFrameWaitsOnlyForTime) {
  Impairment impairment(below_, {.reorder_hold = microseconds(50)});
  impairment.add_fault({.match = {}, .action = Impairment::Action::kReorder});
  impairment.transmit(frame_of(2, 1, "last"));
  EXPECT_THAT(below_.texts, IsEmpty());
  EXPECT_EQ(impairment.next_event(), util::Time(microseconds(50)));
  impairment.handle_timeout(util::Time(microseconds(49)));
  EXPECT_THAT(below_.texts, IsEmpty());
  impairment.handle_timeout(util::Time(microseconds(50)));
  EXPECT_THAT(below_.texts, ElementsAre("last"));
  EXPECT_EQ(impairment.next_event(), util::kNever);
}

TEST_F(ImpairmentTest, DelayIsInVirtualTimeAndKeepsTheOrder) {
  Impairment impairment(below_, {.delay = microseconds(10), .jitter = microseconds(10)});
  for (int i = 0; i != 100; ++i) {
    impairment.handle_timeout(util::Time(microseconds(i)));
    texts_.push_back(std::to_string(i));
    impairment.transmit(frame_of(2, 1, texts_.back()));
  }
  EXPECT_GE(below_.texts.size(), 78u);
  EXPECT_LE(below_.texts.size(), 91u);
  impairment.handle_timeout(util::Time(microseconds(119)));
  ASSERT_EQ(below_.texts.size(), 100u);
  EXPECT_TRUE(std::equal(texts_.begin(), texts_.end(), below_.texts.begin()));
}

TEST_F(ImpairmentTest, AHeldFrameOutlivesTheSendersMemory) {
  Impairment impairment(below_, {.delay = microseconds(1)});
  std::string text = "before";
  impairment.transmit(frame_of(2, 1, text));
  text = "after!";
  impairment.handle_timeout(util::Time(microseconds(1)));
  EXPECT_THAT(below_.texts, ElementsAre("before"));
}

TEST_F(ImpairmentTest, FramesAreReleasedWhenThePortBelowHasReleasedThem) {
  Impairment impairment(below_, {});
  EXPECT_EQ(impairment.released(), 0u);
  EXPECT_EQ(impairment.transmit(frame_of(2, 1, "1")), 1u);
  EXPECT_EQ(impairment.transmit(frame_of(2, 1, "2")), 2u);
  EXPECT_EQ(impairment.released(), 0u);
  below_.done = 2;
  EXPECT_EQ(impairment.released(), 2u);
  EXPECT_EQ(impairment.transmit(frame_of(2, 1, "3")), 3u);
  EXPECT_EQ(impairment.released(), 2u);
}

TEST_F(ImpairmentTest, MemoryThatGoesIsSettledByThePortBelow) {
  Impairment impairment(below_, {.loss = 0.5});
  EXPECT_EQ(impairment.settle(), 17);
  EXPECT_EQ(below_.settled, 1);
}

TEST_F(ImpairmentTest, LostAndHeldFramesReferToNothing) {
  Impairment impairment(below_, {.reorder_hold = microseconds(50)});
  impairment.drop_nth(1);
  impairment.add_fault({.match = {}, .nth = 2, .action = Impairment::Action::kReorder});
  EXPECT_EQ(impairment.transmit(frame_of(2, 1, "lost")), 1u);
  EXPECT_EQ(impairment.released(), 1u);
  EXPECT_EQ(impairment.transmit(frame_of(2, 1, "held")), 2u);
  EXPECT_EQ(impairment.released(), 2u);
  EXPECT_EQ(impairment.transmit(frame_of(2, 1, "sent")), 3u);
  EXPECT_LT(impairment.released(), 3u);
}

TEST_F(ImpairmentTest, ReleasesGoOnWhileFramesNeverStop) {
  Impairment impairment(below_, {});
  for (std::uint64_t i = 1; i <= 100; ++i) {
    EXPECT_EQ(impairment.transmit(frame_of(2, 1, "text")), i);
    below_.done = i - 1;  // the port below never releases the last frame
    EXPECT_LE(impairment.released(), i - 1);
    EXPECT_GE(impairment.released() + 4, i);
  }
}

TEST_F(ImpairmentTest, DropsTheNthFrameByScript) {
  Impairment impairment(below_, {});
  impairment.drop_nth(2);
  impairment.drop_nth(4);
  for (const char* text : {"1", "2", "3", "4", "5"}) impairment.transmit(frame_of(2, 1, text));
  EXPECT_THAT(below_.texts, ElementsAre("1", "3", "5"));
  EXPECT_EQ(impairment.faults_pending(), 0u);
  EXPECT_EQ(impairment.counters().scripted, 2u);
}

TEST_F(ImpairmentTest, AFaultCountsOnlyTheFramesThatMatch) {
  Impairment impairment(below_, {});
  const auto is_b = [](const wire::Frame& frame) { return text_of(frame)[0] == 'b'; };
  impairment.add_fault({.match = is_b, .nth = 2, .count = 2});
  impairment.add_fault({.match = is_b, .nth = 4, .action = Impairment::Action::kDuplicate});
  for (const char* text : {"a1", "b1", "a2", "b2", "b3", "a3"}) {
    impairment.transmit(frame_of(2, 1, text));
  }
  EXPECT_THAT(below_.texts, ElementsAre("a1", "b1", "a2", "a3"));
  EXPECT_EQ(impairment.faults_pending(), 1u) << "the duplicate has not fired";
  impairment.transmit(frame_of(2, 1, "b4"));
  EXPECT_THAT(below_.texts, ElementsAre("a1", "b1", "a2", "a3", "b4", "b4"));
  EXPECT_EQ(impairment.faults_pending(), 0u);
}

}  // namespace
}  // namespace softhca::fabric
