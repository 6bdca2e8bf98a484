// A link that fails by rules, on virtual time.
#include "fabric/faulty_link.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fabric/faulty_link_host.h"

namespace softhca::fabric {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::IsEmpty;

TEST_F(FaultyLinkTest, WithoutRulesArrivingFramesDoNotPassIt) {
  EXPECT_EQ(below_.receiver, &receiver_);
  const auto id = add("port=a,direction=rx,nth=1,do=lose");
  EXPECT_NE(below_.receiver, &receiver_);
  receive({"lost", "1"});
  EXPECT_TRUE(faults_.remove(id));
  EXPECT_EQ(below_.receiver, &receiver_);
  send({"2"});
  EXPECT_THAT(receiver_.texts, ElementsAre("1"));
  EXPECT_THAT(below_.texts, ElementsAre("2"));
}

TEST_F(FaultyLinkTest, ARuleActsOnItsPortAndDirectionOnly) {
  add("port=b,direction=both,do=lose");
  send({"1"});
  const auto id = add("port=a,do=lose");
  send({"2", "3"});
  receive({"4"});
  EXPECT_THAT(below_.texts, ElementsAre("1"));
  EXPECT_THAT(receiver_.texts, ElementsAre("4"));
  EXPECT_EQ(counters(id).matched, 2u);
  EXPECT_EQ(counters(id).fired, 2u);
}

TEST_F(FaultyLinkTest, TurnsCountTheFramesThatTheRuleMatches) {
  add("port=*,direction=both,to=02:00:00:00:00:02,nth=2,do=lose");
  receive({"0"});  // to the other station
  send({"1", "2", "3", "4"});
  EXPECT_THAT(below_.texts, ElementsAre("1", "3", "4"));
  faults_.clear();
  below_.texts.clear();
  const auto id = add("port=*,every=2,do=lose");
  send({"1", "2", "3", "4", "5"});
  EXPECT_THAT(below_.texts, ElementsAre("1", "3", "5"));
  EXPECT_EQ(counters(id).matched, 5u);
  EXPECT_EQ(counters(id).fired, 2u);
}

TEST_F(FaultyLinkTest, AWindowBeginsWithTheFirstFrameThatTheRuleActsOn) {
  add("port=a,nth=2,for=2ms,do=lose");
  send({"1"});
  pass_to(10ms);
  send({"2"});
  pass_to(11ms);
  send({"3"});
  pass_to(12ms);
  send({"4"});
  EXPECT_THAT(below_.texts, ElementsAre("1", "4"));
}

TEST_F(FaultyLinkTest, TheSameSeedLosesTheSameFramesAndAnotherOthers) {
  const auto run = [this](const std::string& seed) {
    below_.texts.clear();
    const auto id = add("port=a,probability=0.5,seed=" + seed + ",do=lose");
    std::vector<std::string> frames;
    for (int i = 0; i != 200; ++i) frames.push_back(std::to_string(i));
    send(frames);
    faults_.remove(id);
    return below_.texts;
  };
  const auto first = run("7");
  EXPECT_NEAR(static_cast<double>(first.size()), 100, 30);
  EXPECT_EQ(run("7"), first);
  EXPECT_NE(run("8"), first);
}

// The value is a constant: every platform must give the same sequence.
TEST_F(FaultyLinkTest, ASeedMeansTheSameOnEveryPlatform) {
  add("port=a,probability=0.5,do=lose");
  send({"0", "1", "2", "3", "4", "5", "6", "7"});
  EXPECT_THAT(below_.texts, ElementsAre("1", "4"));
}

TEST_F(FaultyLinkTest, LinksOfOneRuleLoseDifferentFrames) {
  RecordingPort other_below;
  FaultyLink other(other_below, faults_, "a", 1);
  add("port=*,probability=0.5,do=lose");
  for (int i = 0; i != 100; ++i) {
    send({std::to_string(i)});
    other.transmit(frame_of(kB, kA, texts_.back()));
  }
  EXPECT_NE(below_.texts, other_below.texts);
}

TEST_F(FaultyLinkTest, DuplicatesBothWays) {
  add("port=a,direction=both,do=duplicate");
  send({"1"});
  receive({"2"});
  EXPECT_THAT(below_.texts, ElementsAre("1", "1"));
  EXPECT_THAT(receiver_.texts, ElementsAre("2", "2"));
}

TEST_F(FaultyLinkTest, ALinkThatIsDownLosesFramesOfBothDirections) {
  const auto id = add("port=a,do=link-down,time=5ms");
  EXPECT_FALSE(link_.link_up());
  EXPECT_EQ(counters(id).fired, 1u);
  send({"1"});
  receive({"2"});
  EXPECT_EQ(link_.next_event(), util::Time(5ms));
  pass_to(5ms);
  EXPECT_TRUE(link_.link_up());
  send({"3"});
  EXPECT_THAT(below_.texts, ElementsAre("3"));
  EXPECT_THAT(receiver_.texts, IsEmpty());
  EXPECT_EQ(counters(id).lost, 2u);
  EXPECT_EQ(link_.next_event(), util::kNever);
}

TEST_F(FaultyLinkTest, AFrameMayTakeTheLinkDown) {
  const auto id = add("port=a,direction=both,nth=2,do=link-down");
  send({"1"});
  receive({"2"});
  EXPECT_FALSE(link_.link_up());
  EXPECT_THAT(receiver_.texts, IsEmpty());
  pass_to(1h);
  EXPECT_FALSE(link_.link_up());
  faults_.remove(id);
  EXPECT_TRUE(link_.link_up());
}

TEST_F(FaultyLinkTest, AFlappingLinkComesAndGoesForItsWindow) {
  const auto id = add("port=a,for=25ms,do=link-down,time=2ms,period=10ms");
  std::vector<std::pair<int, bool>> changes;
  bool up = true;
  for (int ms = 0; ms != 40; ++ms) {
    pass_to(std::chrono::milliseconds(ms));
    if (link_.link_up() != up) changes.emplace_back(ms, up = !up);
  }
  EXPECT_THAT(changes, ElementsAre(std::pair(0, false), std::pair(2, true), std::pair(10, false),
                                   std::pair(12, true), std::pair(20, false), std::pair(22, true)));
  EXPECT_EQ(counters(id).fired, 3u);
}

TEST_F(FaultyLinkTest, ALinkIsDownIfThePortBelowIs) {
  below_.up = false;
  EXPECT_FALSE(link_.link_up());
}

TEST_F(FaultyLinkTest, FramesToItselfCrossNoLink) {
  add("port=a,direction=both,do=lose");
  link_.loop_back(frame_of(kA, kA, "own"), 3);
  EXPECT_THAT(below_.looped, ElementsAre("own 3"));
}

TEST_F(FaultyLinkTest, NumbersAscendAndALostFrameHasThatOfItsPredecessor) {
  EXPECT_EQ(link_.transmit(frame_of(kB, kA, "1")), 1u);
  add("port=a,nth=1,do=lose");
  EXPECT_EQ(link_.transmit(frame_of(kB, kA, "2")), 1u);
  EXPECT_EQ(link_.transmit(frame_of(kB, kA, "3")), 2u);
  below_.done = 1;
  EXPECT_EQ(link_.released(), 1u);
  EXPECT_EQ(link_.settle(), 17);
}

}  // namespace
}  // namespace softhca::fabric
