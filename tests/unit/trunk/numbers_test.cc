// The numbers of joined hubs: no two hubs have the same block.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "trunk/world.h"

namespace softhca::trunk {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

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
  network.loses = [](const Packet& packet) { return packet.kind() == Kind::kMembers; };
  run(500ms);
  EXPECT_EQ(listener.count(), 0u) << "before a message of members";
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

}  // namespace
}  // namespace softhca::trunk
