// How long a process waits for the other end of a link, or for the hub.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "hub/hub.h"
#include "hub/uplink_process.h"

namespace softhca::hub {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;

// Flow control: like a device, a checks the room before each turn.
TEST_F(UplinkTest, ASenderThatChecksTheRoomLosesNothing) {
  make_link();
  const std::string packet(4096, 'x');
  std::size_t sent = 0, arrived = 0;
  for (int turn = 0; turn < 20; ++turn) {
    while (const auto room = a_->link().room(kTurn)) {
      const auto packets = std::min(room, kTurn) / 4200;
      for (std::size_t i = 0; i < packets; ++i) a_->push(b_->mac(), packet);
      sent += packets;
      ASSERT_LE(sent - arrived, 512u) << "they do not fit";
    }
    arrived += b_->take().size();
    ASSERT_EQ(arrived, sent);
  }
  EXPECT_GE(sent, 20u * 200);
}

TEST_F(UplinkTest, AReceiverThatTakesNothingIsWaitedForBriefly) {
  make_link();
  const std::string packet(4096, 'x');
  while (a_->link().room(kTurn) != 0) a_->push(b_->mac(), packet);
  now_ += Patience::kLongest - 1ms;
  EXPECT_EQ(a_->link().room(kTurn), 0u);
  now_ += 1ms;
  EXPECT_NE(a_->link().room(kTurn), 0u) << "it stands still, and holds up all others";
  // Once b drains its ring again, a waits for it again.
  (void)b_->take();
  ASSERT_NE(a_->link().room(kTurn), 0u);
  while (a_->link().room(kTurn) != 0) a_->push(b_->mac(), packet);
}

TEST_F(UplinkTest, WhileALinkIsMadeNotTooMuchIsSentByTheHub) {
  const std::string packet(4096, 'x');
  const auto send_until_it_waits = [&](const Process& to) {
    std::size_t sent = 0;
    for (; (a_->link().room(kTurn) != 0) && sent < 1000; ++sent) a_->push(to.mac(), packet);
    return sent;
  };
  for (int i = 0; i < kMany; ++i) a_->push(b_->mac(), "hello");
  run_hub();
  a_->turn();  // the hub introduces b to a
  EXPECT_NE(a_->link().room(kTurn), 0u) << "a little is never too much";
  const auto sent = send_until_it_waits(*b_);
  EXPECT_LT(sent, 200u);
  run_hub();
  EXPECT_EQ(b_->take().size(), kMany + sent);
  run_hub();
  a_->turn();  // a learns that b is ready
  EXPECT_NE(a_->link().room(kTurn), 0u);
  EXPECT_EQ(a_->link().links(), 1u);
  // A process that never gets ready.
  const auto c = join_hub();
  c->turn();
  run_hub();
  for (int i = 0; i < kMany; ++i) a_->push(c->mac(), "hello");
  run_hub();
  a_->turn();
  EXPECT_LT(send_until_it_waits(*c), 200u);
  now_ += Patience::kLongest;
  EXPECT_NE(a_->link().room(kTurn), 0u);
}

TEST_F(UplinkTest, ManyThatGoAtOnceAreNotALongTurn) {
  constexpr std::size_t kOthers = 8;
  std::vector<std::unique_ptr<Process>> others;
  for (std::size_t i = 0; i != kOthers; ++i) {
    others.push_back(join_hub());
    auto& other = *others.back();
    other.turn();
    run_all();
    for (int k = 0; k < kMany; ++k) a_->send(other.mac(), "hello");
    run_hub();
    other.turn();
    run_all();
    other.turn();
  }
  ASSERT_EQ(a_->link().links(), kOthers);
  (void)a_->take();
  for (const auto& other : others) other->push(a_->mac(), "last words");
  others.clear();
  run_hub();
  // However many frames a turn delivers, it takes over only one link.
  std::size_t turns = 0;
  for (; !a_->link().prepare_to_sleep() && turns < 100; ++turns) a_->turn();
  EXPECT_GE(turns, kOthers);
  EXPECT_LT(turns, 2 * kOthers);
  EXPECT_EQ(a_->take(), std::vector<std::string>(kOthers, "last words"));
  EXPECT_EQ(a_->link().links(), 0u);
}

// O_NONBLOCK is a property of the open file, and the peer shares the eventfd's open file.
TEST_F(UplinkTest, AFullBlockingEventfdDelaysNoOther) {
  make_link();
  const std::uint64_t full = ~std::uint64_t{0} - 1;
  std::uint64_t count;
  (void)!::read(b_->link().wake(), &count, sizeof count);
  ASSERT_TRUE(b_->link().prepare_to_sleep());
  ASSERT_EQ(::write(b_->link().wake(), &full, sizeof full), 8);
  ASSERT_EQ(::fcntl(b_->link().wake(), F_SETFL, 0), 0);
  a_->send(b_->mac(), "it returns");
  EXPECT_THAT(b_->take(), ElementsAre("it returns"));
}

TEST_F(UplinkTest, TheEndOfALinkIsReportedLaterToAFullRing) {
  start({.ring_capacity = os::SharedRing::kCapacityMin});
  make_link();
  const auto c = join_hub();
  // Fill the ring until a note does not fit.
  for (const std::size_t size : {9000, 46}) {
    // Frames first wait in the hub for a tenth of a second.
    const auto before = hub_->counters().dropped;
    for (int i = 0; i < 1000 && hub_->counters().dropped == before; ++i) {
      now_ += 1ms;
      c->push(a_->mac(), std::string(size, 'x'));
      run_hub();
    }
    ASSERT_GT(hub_->counters().dropped, before);
  }
  const auto lost = hub_->counters().dropped;
  b_.reset();
  run_hub();
  c->push(c->mac(), "some turns of the hub");
  run_hub();
  EXPECT_EQ(hub_->counters().dropped, lost) << "it is no frame that is lost";
  EXPECT_EQ(a_->link().links(), 1u);
  (void)a_->take();
  c->push(a_->mac(), "there is room now");
  run_all();
  EXPECT_EQ(a_->link().links(), 0u);
}

}  // namespace
}  // namespace softhca::hub
