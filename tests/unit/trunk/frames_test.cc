// Joined hubs: the frames that cross, whole or in pieces, and the room for them. Virtual time, and
// a network that the test controls.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "hub/link_note.h"
#include "trunk/trunk.h"
#include "trunk/world.h"

namespace softhca::trunk {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST_F(JoinedTest, AFrameGoesToTheHubOfItsDestination) {
  auto& third = start(3, {1, 2});
  run(1s);
  here.send(mac_of_process(kThere), mac_of_process(kHere), "hello");
  settle();
  deliver();
  EXPECT_THAT(there.texts(), ElementsAre("hello"));
  EXPECT_THAT(third.texts(), IsEmpty());
}

TEST_F(JoinedTest, MulticastReachesEachHubOnce) {
  auto& third = start(3, {1, 2});
  run(1s);
  here.send(kBroadcast, mac_of_process(kHere), "who has");
  settle();
  deliver();
  EXPECT_THAT(there.texts(), ElementsAre("who has"));
  EXPECT_THAT(third.texts(), ElementsAre("who has"));
  EXPECT_THAT(here.texts(), IsEmpty()) << "a loop";
}

TEST_F(JoinedTest, AGuestIsFoundWhereItWasSeen) {
  auto& third = start(3, {1, 2});
  run(1s);
  there.send(kBroadcast, kGuestThere, "here I am");
  settle();
  deliver();
  (void)third.texts();
  here.send(kGuestThere, kGuestHere, "welcome");
  settle();
  deliver();
  EXPECT_THAT(there.texts(), ElementsAre("welcome"));
  EXPECT_THAT(third.texts(), IsEmpty());
}

TEST_F(JoinedTest, AFrameForAProcessOfThisHubStaysHere) {
  const auto before = here.session().counters().frames_sent;
  here.send(mac_of_process(kHere + 1), mac_of_process(kHere), "not there yet");
  EXPECT_EQ(here.session().counters().frames_sent, before);
}

TEST_F(JoinedTest, SmallFramesShareADatagram) {
  network.history.clear();
  for (int i = 0; i != 10; ++i) here.send(mac_of_process(kThere), mac_of_process(kHere), "small");
  settle();
  EXPECT_EQ(network.history.size(), 1u);
  deliver();
  EXPECT_EQ(there.texts().size(), 10u);
}

TEST_F(TrunkTest, ALongFrameCrossesAShortPathInPieces) {
  network.mtu = 1472;
  auto& there = start(2);
  auto& here = start(1, {2});
  run(1s);
  here.add_process(kHere);
  there.add_process(kThere);
  deliver();
  const std::string text(9000, 'x');
  here.send(mac_of_process(kThere), mac_of_process(kHere), text);
  settle();
  deliver();
  EXPECT_THAT(there.texts(), ElementsAre(text));
  EXPECT_EQ(here.session().datagram_size(), 1472u);
  for (const auto& packet : network.history) {
    if (packet.kind() != Kind::kPiece) continue;
    EXPECT_LE(packet.bytes.size(), 1472u);
  }
}

TEST_F(JoinedTest, ProbesFindTheLongestDatagram) {
  EXPECT_EQ(here.session().datagram_size(), kDatagramMax);
  EXPECT_EQ(there.session().datagram_size(), kDatagramMax);
}

TEST_F(JoinedTest, APathThatShrinksIsMeasuredAgain) {
  network.mtu = 1472;
  run(20s);
  EXPECT_EQ(here.session().datagram_size(), 1472u);
  EXPECT_EQ(there.session().datagram_size(), 1472u);
}

TEST_F(JoinedTest, APathThatShrinksUnderTrafficIsMeasuredAgain) {
  network.mtu = 1472;
  for (int i = 0; i != 200; ++i) {
    here.send(mac_of_process(kThere), mac_of_process(kHere), "request");
    there.send(mac_of_process(kHere), mac_of_process(kThere), "answer");
    run(100ms);
  }
  EXPECT_EQ(here.session().datagram_size(), 1472u);
  EXPECT_EQ(there.session().datagram_size(), 1472u);
}

TEST_F(JoinedTest, APathThatShrinksWhileProcessesComeAndGoIsMeasuredAgain) {
  network.mtu = 1472;
  for (int i = 0; i != 200; ++i) {
    for (auto* const one : {&here, &there}) {
      const auto number = one == &here ? kHere : kThere;
      one->trunk().handle_member(number + 1, i % 2 == 0);
    }
    run(100ms);
  }
  EXPECT_EQ(here.session().datagram_size(), 1472u);
  EXPECT_EQ(there.session().datagram_size(), 1472u);
}

TEST_F(JoinedTest, AFrameThatIsLongerThanAnyIsDropped) {
  const std::string text(Reassembly::kFrameMax, 'x');
  here.send(mac_of_process(kThere), mac_of_process(kHere), text);
  settle();
  deliver();
  EXPECT_THAT(there.texts(), IsEmpty());
  EXPECT_EQ(here.session().counters().dropped_unfit, 1u);
}

TEST_F(JoinedTest, NotesOfLinksDoNotCross) {
  const auto from = hub::address_of(kHere), to = hub::address_of(kThere);
  const hub::LinkNote note{.to = to, .from = from, .kind = hub::LinkNote::Kind::kReady};
  here.send_raw(note.frame());
  settle();
  deliver();
  EXPECT_THAT(there.texts(), IsEmpty());
  EXPECT_EQ(here.trunk().counters().notes, 1u);
}

/// A hub that has the key and breaks the rules.
class HostileHubTest : public TrunkTest {
 protected:
  HostileHubTest() {
    run(1s);
    victim.add_process(kHere);
    hostile.add_process(kThere);
    deliver();
    (void)victim.texts();
  }
  void send(const wire::Frame& frame) {
    hostile.session().send(frame);
    settle();
    deliver();
  }

  Machine& victim = start(1);
  Machine& hostile = start(2, {1});
};

TEST_F(HostileHubTest, AFrameInTheNameOfAnotherHubsProcessIsDropped) {
  send(fabric::frame_of(mac_of_process(kHere), mac_of_process(kHere + 1), "from your own"));
  send(fabric::frame_of(mac_of_process(kHere), mac_of_process(7), "from nobody's"));
  EXPECT_THAT(victim.texts(), IsEmpty());
  EXPECT_EQ(victim.trunk().counters().spoofed, 2u);
}

TEST_F(HostileHubTest, AFrameForAProcessThatIsNotHereIsDropped) {
  send(fabric::frame_of(mac_of_process(kHere + 1), mac_of_process(kThere), "to the gone"));
  EXPECT_THAT(victim.texts(), IsEmpty());
  EXPECT_EQ(victim.trunk().counters().to_departed, 1u);
}

TEST_F(HostileHubTest, ANoteOfALinkIsDropped) {
  const auto from = hub::address_of(kThere), to = hub::address_of(kHere);
  send(hub::LinkNote{.to = to, .from = from, .kind = hub::LinkNote::Kind::kGone}.frame());
  EXPECT_THAT(victim.texts(), IsEmpty());
  EXPECT_EQ(victim.trunk().counters().notes, 1u);
}

TEST_F(JoinedTest, ADatagramThatComesTwiceIsTakenOnce) {
  here.send(mac_of_process(kThere), mac_of_process(kHere), "once");
  settle();
  const auto packet = network.packets.back();
  deliver();
  there.take(packet);
  EXPECT_THAT(there.texts(), ElementsAre("once"));
  EXPECT_EQ(there.session().counters().replayed, 1u);
}

TEST_F(JoinedTest, AChangedDatagramIsDropped) {
  here.send(mac_of_process(kThere), mac_of_process(kHere), "hello");
  settle();
  for (auto& packet : network.packets) packet.bytes[kHeadSize + 20] ^= std::byte{1};
  deliver();
  EXPECT_THAT(there.texts(), IsEmpty());
  EXPECT_EQ(there.session().counters().forged, 1u);
}

TEST_F(JoinedTest, ADatagramFromAnotherAddressIsDropped) {
  here.send(mac_of_process(kThere), mac_of_process(kHere), "hello");
  settle();
  for (auto& packet : network.packets) packet.from = address_of(9);
  deliver();
  EXPECT_THAT(there.texts(), IsEmpty());
}

// Room -------------------------------------------------------------------------------------------

class RoomTest : public JoinedTest {
 protected:
  RoomTest() : frame_(fabric::frame_of(mac_of_process(kThere), mac_of_process(kHere), text_)) {}
  /// Sends until a process would wait. Returns the bytes.
  std::size_t fill() {
    std::size_t bytes = 0;
    while (!here.trunk().must_wait(frame_.head()) && bytes < 10'000'000) {
      here.send_raw(frame_);
      bytes += frame_.size();
    }
    settle();
    return bytes;
  }

  const std::string text_ = std::string(4000, 'x');
  const wire::Frame frame_;
};

TEST_F(RoomTest, SendersWaitUntilTheHubAcknowledges) {
  const auto bytes = fill();
  EXPECT_GE(bytes, 64u << 10);
  EXPECT_LE(bytes, Flight::kWindow);
  EXPECT_TRUE(here.trunk().must_wait(frame_.head()));
  deliver();
  EXPECT_FALSE(here.trunk().must_wait(frame_.head()));
}

TEST_F(RoomTest, AHubThatDoesNotAcknowledgeIsWaitedForBriefly) {
  fill();
  network.packets.clear();
  network.now += 90ms;
  EXPECT_TRUE(here.trunk().must_wait(frame_.head()));
  network.now += 20ms;
  EXPECT_FALSE(here.trunk().must_wait(frame_.head()));
}

// A few datagrams are not acknowledged before more come, or the next second.
TEST_F(RoomTest, TheTimeOfAnAcknowledgementBeginsWhenTheWindowIsFull) {
  here.send_raw(frame_);
  settle();
  network.now += 500ms;
  fill();
  EXPECT_TRUE(here.trunk().must_wait(frame_.head()));
  network.now += 90ms;
  EXPECT_TRUE(here.trunk().must_wait(frame_.head()));
  EXPECT_GE(here.session().bytes_under_way(), Flight::kEnough);
  network.now += 20ms;
  EXPECT_FALSE(here.trunk().must_wait(frame_.head()));
}

TEST_F(RoomTest, FramesThatAreCollectedAcknowledgeWhatCameMeanwhile) {
  here.send_raw(fabric::frame_of(mac_of_process(kThere), mac_of_process(kHere), "collected"));
  there.send(mac_of_process(kHere), mac_of_process(kThere), "meanwhile");
  there.trunk().settle();
  ASSERT_EQ(network.packets.size(), 1u);
  const auto meanwhile = network.packets.front();
  network.packets.clear();
  here.take(meanwhile);
  here.trunk().settle();
  ASSERT_EQ(network.packets.size(), 1u);
  const auto sent = network.packets.front();
  EXPECT_EQ(sent.kind(), Kind::kFrames);
  EXPECT_EQ(parse_head(sent.bytes).value().ack, parse_head(meanwhile.bytes).value().sequence);
}

TEST_F(RoomTest, MulticastBeyondTheLimitIsDropped) {
  const auto all = fabric::frame_of(kBroadcast, mac_of_process(kHere), text_);
  for (int i = 0; i != 1000; ++i) here.send_raw(all);
  EXPECT_FALSE(here.trunk().must_wait(all.head()));
  EXPECT_LE(here.session().bytes_under_way(), Flight::kMost + 2 * kDatagramMax);
  EXPECT_GE(here.session().counters().dropped_full, 800u);
}

TEST_F(JoinedTest, AFullStationStopsTheTrunk) {
  EXPECT_FALSE(there.trunk().waits());
  there.is_full = true;
  here.send(mac_of_process(kThere), mac_of_process(kHere), "much");
  settle();
  deliver();
  EXPECT_TRUE(there.trunk().waits());
  there.is_full = false;
  EXPECT_FALSE(there.trunk().waits());
}

TEST_F(JoinedTest, AStationThatStaysFullStopsTheTrunkBriefly) {
  const auto send = [this] {
    here.send(mac_of_process(kThere), mac_of_process(kHere), std::string(4000, 'x'));
    settle();
    deliver();
  };
  there.is_full = true;
  send();
  EXPECT_TRUE(there.trunk().waits());
  network.now += 90ms;
  EXPECT_TRUE(there.trunk().waits());
  network.now += 20ms;
  EXPECT_FALSE(there.trunk().waits());
  for (int i = 0; i != 200; ++i) {
    send();
    EXPECT_FALSE(there.trunk().waits()) << i;
    network.now += 1ms;
  }
  EXPECT_EQ(there.texts().size(), 201u);
  for (int i = 0; i != 100; ++i) send();
  EXPECT_TRUE(there.trunk().waits()) << "after another MiB";
}

TEST_F(JoinedTest, InspectShowsEachHub) {
  util::InspectNode node("trunk");
  here.trunk().inspect(node);
  const auto text = node.to_text();
  EXPECT_THAT(text, HasSubstr("hub 10.0.0.2:24791"));
  EXPECT_THAT(text, HasSubstr("state: joined"));
  EXPECT_THAT(text, HasSubstr("datagram_bytes: 8972"));
  EXPECT_THAT(text, HasSubstr("processes_of_198.18.9: 1"));
}

TEST_F(TrunkTest, InspectShowsBothSessionsOfHubsThatJoinEachOther) {
  auto& one = start(1, {2});
  start(2, {1});
  run(1s);
  ASSERT_EQ(one.count(), 2u);
  util::InspectNode node("trunk");
  one.trunk().inspect(node);
  const auto text = node.to_text();
  EXPECT_THAT(text, HasSubstr("hub 10.0.0.2:24791:\n"));
  EXPECT_THAT(text, HasSubstr("hub 10.0.0.2:24791 again:\n"));
}

}  // namespace
}  // namespace softhca::trunk
