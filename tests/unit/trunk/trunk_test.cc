// Joined hubs: how sessions begin and end. Virtual time, and a network that the test controls.
#include "trunk/trunk.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "trunk/world.h"

namespace softhca::trunk {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

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

TEST_F(JoinedTest, AMessageOfMembersThatHaveChangedIsShort) {
  network.history.clear();
  there.add_process(kThere + 1);
  ASSERT_EQ(network.history.size(), 1u);
  EXPECT_LT(network.history.front().bytes.size(), 200u);
  deliver();
  run(2s);
  const auto longest = std::ranges::max(network.history, {},
                                        [](const Packet& packet) { return packet.bytes.size(); });
  EXPECT_EQ(longest.kind(), Kind::kMembers);
  EXPECT_EQ(longest.bytes.size(), kDatagramMax);
}

TEST_F(JoinedTest, ASessionLivesWhileProcessesComeAndGo) {
  for (int i = 0; i != 600; ++i) {
    here.trunk().handle_member(kHere + 1, i % 2 == 0);
    there.trunk().handle_member(kThere + 1, i % 2 == 0);
    run(10ms);
  }
  EXPECT_EQ(here.count(), 1u);
  EXPECT_GE(here.session().counters().datagrams_received, 600u) << "another session";
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

}  // namespace
}  // namespace softhca::trunk
