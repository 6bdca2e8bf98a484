// Frames that a faulty link holds: delayed, reordered, limited and paused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fabric/faulty_link_host.h"
#include "fabric/switch.h"
#include "os/memory_faults.h"

namespace softhca::fabric {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

TEST_F(FaultyLinkTest, AReorderedFrameLetsSoManyOthersPass) {
  add("port=a,direction=both,every=4,do=reorder,distance=2");
  send({"1", "2", "3", "4", "5", "6", "7"});
  receive({"8", "9"});
  EXPECT_THAT(below_.texts, ElementsAre("1", "2", "3", "5", "6", "4", "7"));
  pass_to(99us);
  EXPECT_THAT(receiver_.texts, ElementsAre("9"));
  pass_to(100us);
  EXPECT_THAT(receiver_.texts, ElementsAre("9", "8"));
}

TEST_F(FaultyLinkTest, FramesThatALimitHoldsPassAReorderedOne) {
  // A frame of 100 bytes takes 8 us. Frames that came before the third one do not pass it.
  add("port=a,do=limit,rate=100mbit");
  add("port=a,nth=3,do=reorder,distance=2");
  const auto text = [](int number) { return std::string(85, 'x') + std::to_string(number); };
  for (int i = 1; i <= 6; ++i) send({text(i)});
  pass_to(1ms);
  EXPECT_THAT(below_.texts, ElementsAre(text(1), text(2), text(4), text(5), text(3), text(6)));
}

TEST_F(FaultyLinkTest, AReorderedFrameThatIsDelayedTooWaitsForItsTime) {
  add("port=a,nth=1,do=delay,time=50us");
  add("port=a,nth=1,do=reorder");
  send({"1", "2"});
  pass_to(49us);
  EXPECT_THAT(below_.texts, ElementsAre("2"));
  pass_to(50us);
  EXPECT_THAT(below_.texts, ElementsAre("2", "1"));
}

TEST_F(FaultyLinkTest, ADelayedFrameIsPassedByOthersButNotByThoseOfItsRule) {
  add("port=a,to=02:00:00:00:00:02,do=delay,time=10us,jitter=10us");
  for (int i = 0; i != 50; ++i) {
    send({std::to_string(i)});
    pass_to(std::chrono::microseconds(i + 1));
  }
  link_.transmit(frame_of(kB + 1, kA, "other"));
  ASSERT_GE(below_.texts.size(), 30u);
  EXPECT_EQ(below_.texts.back(), "other");
  std::erase(below_.texts, "other");
  pass_to(69us);
  ASSERT_EQ(below_.texts.size(), 50u);
  for (int i = 0; i != 50; ++i)
    EXPECT_EQ(below_.texts[static_cast<std::size_t>(i)], std::to_string(i));
}

TEST_F(FaultyLinkTest, ADelayedFrameOutlivesTheSendersMemory) {
  add("port=a,do=delay,time=1us");
  std::string text = "before";
  link_.transmit(frame_of(kB, kA, text));
  text = "after!";
  EXPECT_THAT(below_.texts, IsEmpty());
  EXPECT_EQ(link_.next_event(), util::Time(1us));
  EXPECT_FALSE(link_.has_due());
  now_ = util::Time(1us);
  EXPECT_TRUE(link_.has_due());
  link_.handle_timeout(now_);
  EXPECT_THAT(below_.texts, ElementsAre("before"));
}

TEST_F(FaultyLinkTest, ALimitSendsAtItsRateAndLosesWhatItsQueueDoesNotHold) {
  // A frame of 100 bytes takes 8 us. The queue has room for two beside the one under way.
  const auto id = add("port=a,do=limit,rate=100mbit,queue=150");
  const std::string payload(86, 'x');
  send(std::vector<std::string>(5, payload));
  EXPECT_THAT(below_.texts, IsEmpty());
  pass_to(7999ns);
  EXPECT_THAT(below_.texts, IsEmpty());
  pass_to(8us);
  EXPECT_THAT(below_.texts, SizeIs(1));
  pass_to(16us);
  EXPECT_THAT(below_.texts, SizeIs(2));
  pass_to(1s);
  EXPECT_THAT(below_.texts, SizeIs(2));
  EXPECT_EQ(counters(id).lost, 3u);
}

TEST_F(FaultyLinkTest, FramesThatAreLostTakeNoneOfALimitsRate) {
  // A frame of 100 bytes takes 8 us.
  add("port=a,do=limit,rate=100mbit");
  const auto loses = add("port=a,do=lose");
  const std::string payload(86, 'x');
  send(std::vector<std::string>(5, payload));
  faults_.remove(loses);
  os::MemoryFaults::note();
  send(std::vector<std::string>(5, payload));
  os::MemoryFaults::clear();
  send({payload, payload});
  pass_to(8us);
  EXPECT_THAT(below_.texts, SizeIs(1));
  pass_to(16us);
  EXPECT_THAT(below_.texts, SizeIs(2));
}

TEST_F(FaultyLinkTest, APauseStopsOneDirectionAndKeepsTheOrder) {
  add("port=a,nth=2,do=pause,time=1ms");
  send({"1", "2", "3"});
  receive({"4"});
  EXPECT_THAT(below_.texts, ElementsAre("1"));
  EXPECT_THAT(receiver_.texts, ElementsAre("4"));
  // A frame that comes when the pause ends does not overtake.
  now_ = util::Time(1ms);
  send({"5"});
  EXPECT_THAT(below_.texts, ElementsAre("1", "2", "3", "5"));
}

TEST_F(FaultyLinkTest, OneCallReleasesALimitedNumberOfFramesInOrder) {
  const auto id = add("port=a,nth=1,do=pause,time=1ms");
  std::vector<std::string> all;
  for (int i = 0; i != 20; ++i) all.push_back(std::to_string(i));
  send(all);
  now_ = util::Time(1ms);
  link_.handle_timeout(now_, 5);
  EXPECT_THAT(below_.texts, SizeIs(5));
  EXPECT_TRUE(link_.has_due());
  // A further frame takes some with it, and waits behind the rest.
  all.emplace_back("late");
  send({"late"});
  EXPECT_THAT(below_.texts, SizeIs(5 + FaultyLink::kReleasedPerFrame));
  EXPECT_LE(link_.next_event(), now_);
  faults_.remove(id);
  link_.handle_timeout(now_);
  EXPECT_EQ(below_.texts, all);
  EXPECT_FALSE(link_.has_due());
}

TEST_F(FaultyLinkTest, WhatTheMemoryDoesNotHoldIsLostAndCounted) {
  const auto id = add("port=a,do=delay,time=1s");
  for (std::size_t i = 0; i != HeldFrames::kFramesMax + 3; ++i) send({"x"});
  EXPECT_EQ(counters(id).lost, 3u);
  pass_to(1s);
  EXPECT_THAT(below_.texts, SizeIs(HeldFrames::kFramesMax));
}

TEST_F(FaultyLinkTest, WhatIsSentWhileAFaultOnMemoryIsPendingIsLostAndCounted) {
  const auto id = add("port=a,do=delay,time=1ms");
  send({"1"});
  os::MemoryFaults::note();
  send({"2"});
  os::MemoryFaults::clear();
  send({"3"});
  pass_to(1ms);
  EXPECT_THAT(below_.texts, ElementsAre("1", "3"));
  EXPECT_EQ(counters(id).lost, 1u);
}

TEST_F(FaultyLinkTest, FramesOfARuleThatIsRemovedGoOn) {
  const auto delays = add("port=a,do=delay,time=1s");
  send({"1"});
  const auto pauses = add("port=a,direction=rx,do=pause,time=1s");
  receive({"2"});
  faults_.remove(delays);
  EXPECT_TRUE(link_.has_due());
  link_.handle_timeout(now_);
  EXPECT_THAT(below_.texts, ElementsAre("1"));
  EXPECT_THAT(receiver_.texts, IsEmpty());
  faults_.remove(pauses);
  link_.handle_timeout(now_);
  EXPECT_THAT(receiver_.texts, ElementsAre("2"));
  EXPECT_EQ(below_.receiver, &receiver_);
  EXPECT_EQ(link_.next_event(), util::kNever);
}

// A frame is built in the draft of the switch, which the frames that were held before take too.
TEST_F(FaultyLinkTest, AFrameBuiltInPlaceIsNotOverwrittenByOneThatWaited) {
  Switch network;
  const auto port = network.create_port("a"), other = network.create_port("b");
  Recorder recorder;
  other->set_receiver(&recorder);
  FaultyLink link(*port, faults_, "b", 0);
  add("port=b,nth=1,do=delay,time=1us");
  link.draft() = frame_of(kB, kA, "first");
  link.transmit(link.draft());
  now_ = util::Time(1us);
  link.draft() = frame_of(kB, kA, "second");
  link.transmit(link.draft());
  network.deliver(kAllFrames);
  EXPECT_THAT(recorder.texts, ElementsAre("first", "second"));
}

TEST_F(FaultyLinkTest, APacketTakesAtMostSoManyFramesWithIt) {
  EXPECT_EQ(link_.frames_per_packet(), 1u);
  const auto hold = add("port=a,do=delay,time=1ms");
  for (int i = 0; i != 100; ++i) send({std::to_string(i)});
  faults_.remove(hold);
  EXPECT_EQ(link_.frames_per_packet(), FaultyLink::kFramesPerPacket) << "frames wait";
  add("port=a,do=duplicate");
  std::size_t most = 0;
  for (int i = 0; link_.has_due(); ++i) {
    ASSERT_LT(i, 1000);
    const auto before = below_.texts.size();
    send({"x"});
    most = std::max(most, below_.texts.size() - before);
  }
  EXPECT_GT(most, 1u);
  EXPECT_LE(most, FaultyLink::kFramesPerPacket);
  faults_.clear();
  link_.handle_timeout(now_);
  EXPECT_EQ(link_.frames_per_packet(), 1u);
}

TEST_F(FaultyLinkTest, ATurnSendsAndDeliversNoMoreThanItMay) {
  const auto id = add("port=a,direction=both,do=delay,time=1ms");
  for (int i = 0; i != 5; ++i) {
    send({std::to_string(i)});
    receive({std::to_string(i)});
  }
  now_ = util::Time(1ms);
  link_.handle_timeout(now_, 0, 2);
  EXPECT_THAT(below_.texts, IsEmpty());
  EXPECT_THAT(receiver_.texts, ElementsAre("0", "1"));
  link_.handle_timeout(now_, 3, 0);
  EXPECT_THAT(below_.texts, ElementsAre("0", "1", "2"));
  EXPECT_THAT(receiver_.texts, SizeIs(2));
  EXPECT_TRUE(link_.has_due());
  EXPECT_EQ(counters(id).lost, 0u);
}

}  // namespace
}  // namespace softhca::fabric
