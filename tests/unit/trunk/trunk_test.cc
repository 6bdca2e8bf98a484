// Joined hubs: sessions begin, carry frames, and end. Virtual time, and a network that the test
// controls.
#include "trunk/trunk.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "hub/link_note.h"
#include "trunk/world.h"

namespace softhca::trunk {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::uint64_t kBroadcast = 0xffffffffffff;
/// Numbers of processes in blocks 3 and 9.
constexpr unsigned kHere = 3 * 256 + 1, kThere = 9 * 256 + 5;
/// Stations that are no processes.
constexpr std::uint64_t kGuestHere = 0x020000000001, kGuestThere = 0x020000000002;

class JoinedTest : public TrunkTest {
 protected:
  JoinedTest() {
    run(1s);
    here.add_process(kHere);
    there.add_process(kThere);
    deliver();
  }

  Machine& there = start(2);
  Machine& here = start(1, {2});
};

// How sessions begin -----------------------------------------------------------------------------

TEST_F(TrunkTest, AJoinerHasASessionWithTheListener) {
  auto& listener = start(2);
  auto& joiner = start(1, {2});
  EXPECT_FALSE(joiner.sessions().all_answered());
  run(20ms);
  EXPECT_EQ(listener.count(), 1u);
  EXPECT_EQ(joiner.count(), 1u);
  EXPECT_TRUE(joiner.sessions().all_answered());
  EXPECT_EQ(joiner.sessions().refusal(), "");
}

TEST_F(TrunkTest, AJoinerTriesAgainUntilTheListenerIsThere) {
  auto& joiner = start(1, {2});
  run(30s);
  const auto hellos = network.history.size();
  EXPECT_GE(hellos, 14u);
  EXPECT_LE(hellos, 20u) << "at most one each two seconds, after the first";
  auto& listener = start(2);
  run(3s);
  EXPECT_EQ(joiner.count(), 1u);
  EXPECT_EQ(listener.count(), 1u);
}

TEST_F(TrunkTest, AnotherKeyIsRefusedInWords) {
  auto& listener = start(2);
  auto& joiner = start(1, {2}, key_of("another key, as long as it"));
  run(1s);
  EXPECT_EQ(joiner.count(), 0u);
  EXPECT_EQ(listener.count(), 0u);
  EXPECT_EQ(joiner.sessions().refusal(), "host2 refuses: its fabric has another key");
  EXPECT_GE(listener.sessions().counters().refused_key, 1u);
}

TEST_F(TrunkTest, AnotherNameIsRefusedInWords) {
  start(2, {}, shared_key(), "lab");
  auto& joiner = start(1, {2});
  run(1s);
  EXPECT_THAT(joiner.sessions().refusal(), HasSubstr("another name (--fabric)"));
}

TEST_F(TrunkTest, AHubDoesNotJoinItself) {
  auto& alone = start(1, {1});
  run(10s);
  EXPECT_EQ(alone.count(), 0u);
  EXPECT_TRUE(alone.sessions().all_answered());
  EXPECT_EQ(alone.sessions().refusal(), "");
  EXPECT_LE(network.history.size(), 2u) << "it does not ask again";
}

TEST_F(TrunkTest, AHelloFromAForgedAddressStoresNothing) {
  auto& listener = start(2);
  start(1, {2});
  network.loses = [](const Packet& packet) { return packet.to == address_of(1); };
  run(20ms);
  auto hello = network.history.front();
  ASSERT_EQ(hello.kind(), Kind::kHello);
  network.history.clear();
  for (unsigned host = 50; host != 250; ++host) {
    hello.from = address_of(host);
    listener.take(hello);
  }
  ASSERT_EQ(network.history.size(), 200u);
  for (const auto& packet : network.history) EXPECT_EQ(packet.kind(), Kind::kChallenge);
  EXPECT_EQ(listener.sessions().pending(), 0u);
}

TEST_F(TrunkTest, ACookieIsValidAtItsAddressOnly) {
  auto& listener = start(2);
  start(1, {2});
  // The listener's welcome is lost, and the joiner's hello with its cookie is sent from elsewhere.
  network.loses = [](const Packet& packet) { return packet.kind() == Kind::kWelcome; };
  run(20ms);
  auto hello = network.history[2];
  ASSERT_EQ(hello.kind(), Kind::kHello);
  ASSERT_EQ(network.history[3].kind(), Kind::kWelcome);
  hello.from = address_of(77);
  network.history.clear();
  listener.take(hello);
  ASSERT_EQ(network.history.size(), 1u);
  EXPECT_EQ(network.history[0].kind(), Kind::kChallenge);
}

TEST_F(TrunkTest, EveryAnswerIsShorterThanItsCause) {
  start(2);
  start(1, {2});
  start(3, {2}, key_of("another key, as long as it"));
  start(4, {2}, shared_key(), "lab");
  run(20ms);
  std::size_t hello = 0, answers = 0;
  for (const auto& packet : network.history) {
    if (packet.kind() == Kind::kHello) hello = packet.bytes.size();
  }
  for (const auto& packet : network.history) {
    const bool is_answer = packet.kind() == Kind::kChallenge || packet.kind() == Kind::kWelcome ||
                           packet.kind() == Kind::kRefuse;
    answers += is_answer;
    if (!is_answer) continue;
    EXPECT_LT(packet.bytes.size(), hello);
  }
  EXPECT_EQ(answers, 4u);
}

TEST_F(TrunkTest, RefusalsAreLimited) {
  auto& listener = start(2);
  start(1, {2}, key_of("another key, as long as it"));
  network.loses = [](const Packet& packet) { return packet.to == address_of(1); };
  run(20ms);
  const auto hello = network.history.front();
  network.history.clear();
  for (int i = 0; i != 1000; ++i) listener.take(hello);
  EXPECT_LE(network.history.size(), 20u);
}

TEST_F(TrunkTest, APendingSessionIsForgotten) {
  auto& listener = start(2);
  auto& joiner = start(1, {2});
  network.loses = [](const Packet& packet) { return packet.kind() == Kind::kWelcome; };
  run(3s);
  EXPECT_EQ(listener.count(), 0u);
  network.loses = {};
  run(3s);
  EXPECT_EQ(listener.count(), 1u);
  EXPECT_EQ(joiner.count(), 1u);
}

TEST_F(TrunkTest, AHubThatOnlyListensForgetsAPendingSessionInTime) {
  auto& listener = start(2);
  auto& joiner = start(1, {2});
  network.loses = [](const Packet& packet) { return packet.kind() == Kind::kWelcome; };
  run(20ms);
  ASSERT_EQ(listener.sessions().pending(), 1u);
  kill(joiner);
  const auto next = listener.sessions().next();
  ASSERT_LE(next, network.now + Sessions::kPendingLife);
  network.now = next;
  listener.sessions().tick();
  EXPECT_EQ(listener.sessions().pending(), 0u);
  EXPECT_EQ(listener.sessions().next(), util::kNever);
}

TEST_F(TrunkTest, ARecordedBeginningStartsNothing) {
  auto& listener = start(2);
  start(1, {2});
  run(20ms);
  const auto history = network.history;
  const auto before = listener.session().counters().datagrams_received;
  for (const auto& packet : history) {
    if (packet.to == address_of(2)) listener.take(packet);
  }
  EXPECT_EQ(listener.count(), 1u);
  EXPECT_EQ(listener.session().counters().datagrams_received, before);
  EXPECT_GE(listener.session().counters().replayed, 1u);
}

TEST_F(TrunkTest, HubsThatJoinEachOtherSendByOneSession) {
  auto& one = start(1, {2});
  auto& two = start(2, {1});
  run(1s);
  one.add_process(kHere);
  two.add_process(kThere);
  deliver();
  one.send(kBroadcast, mac_of_process(kHere), "to all");
  two.send(mac_of_process(kHere), mac_of_process(kThere), "to one");
  settle();
  deliver();
  EXPECT_THAT(two.texts(), ElementsAre("to all"));
  EXPECT_THAT(one.texts(), ElementsAre("to one"));
}

// How they end -----------------------------------------------------------------------------------

TEST_F(JoinedTest, AHubThatIsSilentHasGone) {
  EXPECT_THAT(here.members, ElementsAre(kThere));
  kill(there);
  run(4s);
  EXPECT_EQ(here.count(), 1u);
  run(2s);
  EXPECT_EQ(here.count(), 0u);
  EXPECT_THAT(here.members, IsEmpty());
}

TEST_F(JoinedTest, AGoodbyeEndsASession) {
  there.sessions().say_goodbye();
  deliver();
  EXPECT_EQ(here.count(), 0u);
  EXPECT_THAT(here.members, IsEmpty());
}

TEST_F(JoinedTest, AHubThatIsStartedAgainIsJoinedAgain) {
  kill(there);
  auto& again = start(2);
  run(8s);
  EXPECT_EQ(here.count(), 1u);
  again.add_process(kThere + 1);
  deliver();
  EXPECT_THAT(here.members, ElementsAre(kThere + 1));
}

TEST_F(JoinedTest, AJoinerThatIsStartedAgainReplacesItsSession) {
  kill(here);
  auto& again = start(1, {2});
  run(100ms);
  EXPECT_EQ(again.count(), 1u);
  EXPECT_EQ(there.count(), 1u) << "the earlier one has ended";
  EXPECT_THAT(there.members, IsEmpty());
}

TEST_F(JoinedTest, ALostMessageOfMembersIsRepeated) {
  network.loses = [](const Packet&) { return true; };
  there.add_process(kThere + 1);
  deliver();
  network.loses = {};
  run(100ms);
  EXPECT_THAT(here.members, ElementsAre(kThere, kThere + 1));
}

TEST_F(JoinedTest, AnOvertakenMessageOfMembersIsIgnored) {
  there.add_process(kThere + 1);
  const auto before = network.packets.back();
  network.packets.clear();
  there.add_process(kThere + 2);
  deliver();
  here.take(before);
  EXPECT_THAT(here.members, ElementsAre(kThere, kThere + 1, kThere + 2));
}

TEST_F(JoinedTest, AProcessThatLeavesIsReported) {
  there.trunk().handle_member(kThere, false);
  deliver();
  EXPECT_THAT(here.members, IsEmpty());
}

TEST_F(JoinedTest, AHubThatComesAndGoesDoesNotFillTheLog) {
  static unsigned lines;
  lines = 0;
  util::set_log_sink([](auto, auto) { ++lines; });
  for (int i = 0; i != 100; ++i) {
    there.sessions().say_goodbye();
    deliver();
    run(20ms);
  }
  util::set_log_sink(nullptr);
  EXPECT_EQ(here.count(), 1u);
  EXPECT_GE(lines, 20u);
  EXPECT_LE(lines, 100u) << "of 400 times";
}

// Numbers ----------------------------------------------------------------------------------------

TEST_F(JoinedTest, ABlockOfAnotherHubIsNotClaimed) {
  EXPECT_FALSE(here.trunk().claim(kThere / 256));
  EXPECT_TRUE(here.trunk().has(kThere));
  EXPECT_FALSE(here.trunk().has(kHere));
  EXPECT_TRUE(here.trunk().claim(20));
}

TEST_F(JoinedTest, AnEmptyBlockIsFreeForOthersUnlessItIsTheLast) {
  there.trunk().handle_member(kThere, false);
  deliver();
  EXPECT_FALSE(here.trunk().claim(kThere / 256)) << "its next number will come from there";
  there.add_process(20 * 256 + 1);
  deliver();
  EXPECT_TRUE(here.trunk().claim(kThere / 256));
}

TEST_F(JoinedTest, AHubHasAsManyBlocksAsOneMessageHolds) {
  EXPECT_FALSE(here.trunk().may_give(kThere));
  EXPECT_TRUE(here.trunk().may_give(kHere + 1));
  for (unsigned block = 20; block != 20 + kBlocksMax - 1; ++block)
    here.add_process(block * 256 + 1);
  EXPECT_FALSE(here.trunk().claim(100));
  EXPECT_FALSE(here.trunk().may_give(100 * 256 + 1));
  EXPECT_TRUE(here.trunk().may_give(kHere + 1));
  deliver();
  EXPECT_EQ(there.members.size(), kBlocksMax);
}

TEST_F(TrunkTest, HubsWithTheSameNumbersRefuseEachOther) {
  auto& listener = start(2);
  auto& joiner = start(1, {2});
  listener.add_process(kHere);
  joiner.add_process(kHere);
  run(1s);
  EXPECT_EQ(joiner.count(), 0u);
  EXPECT_EQ(listener.count(), 0u);
  EXPECT_THAT(joiner.sessions().refusal(), HasSubstr("same addresses 198.18.x.0/24"));
}

TEST_F(TrunkTest, HubsThatComeToHaveTheSameNumbersPart) {
  auto& listener = start(2);
  auto& joiner = start(1, {2});
  run(1s);
  listener.add_process(kHere);
  joiner.add_process(kHere);
  deliver();
  EXPECT_EQ(joiner.count(), 0u);
  EXPECT_EQ(listener.count(), 0u);
}

class BlocksTest : public TrunkTest {
 protected:
  BlocksTest() {
    listener.add_process(kThere);
    joiner.add_process(kHere);
    network.loses = [](const Packet& packet) { return packet.kind() == Kind::kMembers; };
  }

  Machine& listener = start(2);
  Machine& joiner = start(1, {2});
};

TEST_F(BlocksTest, TheBlocksOfAHubAreKnownFromTheBeginning) {
  run(20ms);
  ASSERT_EQ(listener.count(), 1u);
  EXPECT_FALSE(joiner.trunk().claim(kThere / 256));
  EXPECT_FALSE(listener.trunk().claim(kHere / 256));
  network.loses = {};
  run(2s);
  EXPECT_THAT(joiner.members, ElementsAre(kThere));
  EXPECT_THAT(listener.members, ElementsAre(kHere));
}

TEST_F(BlocksTest, NumbersThatAreGivenMeanwhileEndAPendingSession) {
  network.loses = [](const Packet& packet) {
    return packet.from == address_of(1) && packet.kind() > Kind::kRefuse;
  };
  run(20ms);
  ASSERT_EQ(listener.sessions().pending(), 1u);
  listener.add_process(kHere);
  network.loses = {};
  run(1s);
  EXPECT_EQ(listener.sessions().pending(), 0u);
  EXPECT_EQ(listener.count(), 0u);
  EXPECT_EQ(joiner.count(), 0u);
  EXPECT_THAT(listener.members, IsEmpty());
  EXPECT_THAT(joiner.sessions().refusal(), HasSubstr("same addresses 198.18.x.0/24"));
}

TEST_F(JoinedTest, AHubWithTheNumbersOfAThirdIsRefused) {
  auto& joiner = start(3);
  joiner.add_process(kThere + 1);
  auto& both = start(4, {2, 3});
  run(1s);
  EXPECT_EQ(both.count(), 1u);
  EXPECT_EQ(both.members.size(), 1u);
  EXPECT_THAT(both.sessions().refusal(), HasSubstr("same addresses 198.18.x.0/24"));
  auto& late = start(5, {1});
  late.add_process(kThere + 2);
  run(1s);
  EXPECT_EQ(late.count(), 0u);
  EXPECT_THAT(here.members, ElementsAre(kThere));
}

TEST_F(JoinedTest, AHubThatAnnouncesTheNumbersOfAThirdIsLeft) {
  auto& third = start(3, {1});
  run(1s);
  ASSERT_EQ(here.count(), 2u);
  third.add_process(kThere);
  deliver();
  EXPECT_EQ(here.count(), 1u);
  EXPECT_EQ(third.count(), 0u);
  EXPECT_EQ(there.count(), 1u);
  EXPECT_THAT(here.members, ElementsAre(kThere));
}

// Frames -----------------------------------------------------------------------------------------

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
  EXPECT_EQ(victim.trunk().counters().to_the_gone, 1u);
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
