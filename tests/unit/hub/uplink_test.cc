// Processes that come to exchange frames without their hub (hub/link_note.h).
#include "hub/uplink.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "fabric/switch.h"
#include "hub/hub.h"
#include "hub/loopback_address.h"
#include "hub/open_roce_socket.h"
#include "hub/roce_link.h"
#include "hub/uplink_process.h"
#include "wire/group_mac.h"
#include "wire/ib_header.h"
#include "wire/train.h"

namespace softhca::hub {
namespace {

using testing::Contains;
using testing::ElementsAre;

TEST_F(UplinkTest, TwoThatHaveMuchToSayDoSoWithoutTheHub) {
  make_link();
  EXPECT_EQ(hub_->counters().links, 1u);
  // The hub does not run.
  a_->send(b_->mac(), "question");
  EXPECT_THAT(b_->take(), ElementsAre("question"));
  b_->send(a_->mac(), "answer");
  EXPECT_THAT(a_->take(), ElementsAre("answer"));
}

/// A train of RDMA WRITE MIDDLE packets, from PSN `first`.
wire::Frame train_of(std::uint64_t to, std::uint64_t from, std::uint32_t first, unsigned packets,
                     std::span<const std::byte> payload) {
  wire::IbAddress address;
  address.source_mac = wire::MacAddress::from_u64(from);
  address.destination_mac = wire::MacAddress::from_u64(to);
  address.source_gid = wire::Gid::from_ipv4(0x0a000001);
  address.destination_gid = wire::Gid::from_ipv4(0x0a000002);
  wire::Bth bth;
  bth.opcode = wire::Opcode::RC_RDMA_WRITE_MIDDLE;
  bth.psn = wire::Psn(first);
  wire::Frame frame;
  const auto size = payload.size() / packets;
  wire::IbHeader(address).emit(bth, {}, size, frame);
  EXPECT_TRUE(frame.add_segment(payload));
  frame.set_train(
      {static_cast<std::uint16_t>(packets), static_cast<std::uint16_t>(size), 0, false});
  return frame;
}

TEST_F(UplinkTest, ATrainArrivesWithAndWithoutALink) {
  const std::vector<std::byte> payload(std::size_t{40} * 4096, std::byte{0x5a});
  std::uint32_t psn = 0;
  const auto send_and_look = [&] {
    a_->send(train_of(b_->mac(), a_->mac(), psn, 40, payload));
    run_all();
    std::vector<std::uint32_t> psns;
    for (const auto& packet : b_->take_packets()) psns.push_back(packet.bth.psn.value());
    std::vector<std::uint32_t> expected(40);
    std::iota(expected.begin(), expected.end(), psn);
    EXPECT_EQ(psns, expected);
    psn += 40;
  };
  send_and_look();
  make_link();
  (void)b_->take_packets();
  send_and_look();
}

TEST_F(UplinkTest, TwoThatHaveLittleToSayDoNot) {
  a_->send(b_->mac(), "hello");
  run_all();
  EXPECT_THAT(b_->take(), ElementsAre("hello"));
  EXPECT_EQ(a_->link().links(), 0u);
  EXPECT_EQ(hub_->counters().links, 0u);
}

TEST_F(UplinkTest, FramesStayInOrderWhileALinkIsMade) {
  // All processes run now and then, interleaved at different rates.
  for (int phase = 0; phase < 60; ++phase) {
    start({});
    std::vector<std::string> heard, all;
    const auto hear = [&] {
      for (auto& text : b_->take()) heard.push_back(std::move(text));
    };
    for (int round = 0; round < 120; ++round) {
      all.push_back(std::to_string(round));
      a_->push(b_->mac(), all.back());
      if ((round + phase) % 4 == 0) loop_->run_once(util::Time::min());
      if ((round + phase) % 7 == 0) a_->turn();
      if ((round + phase) % 3 == 0) hear();
      if ((round + phase) % 5 == 0) hear();
    }
    run_all();
    hear();
    ASSERT_EQ(a_->link().links(), 1u) << phase;
    ASSERT_EQ(heard, all) << phase;
  }
}

TEST_F(UplinkTest, FramesStayInOrderWhereTheHubDoesNotGetToRun) {
  for (int i = 0; i < kMany; ++i) a_->push(b_->mac(), "hello");
  run_hub();
  a_->turn();
  b_->turn();
  run_hub();  // each process is notified that the other is ready
  (void)b_->take();
  // From here, the hub does not run.
  a_->push(b_->mac(), "first");
  a_->turn();
  a_->push(b_->mac(), "second");
  now_ += Patience::kLongest;  // the longest wait for a note
  auto heard = b_->take();
  run_all();
  for (auto& text : b_->take()) heard.push_back(std::move(text));
  EXPECT_THAT(heard, ElementsAre("first", "second"));
  EXPECT_EQ(a_->link().links(), 1u);
}

TEST_F(UplinkTest, ASleepingEndIsWokenByTheOther) {
  make_link();
  std::uint64_t count;
  (void)!::read(b_->link().wake(), &count, sizeof count);
  ASSERT_TRUE(b_->link().prepare_to_sleep());
  EXPECT_FALSE(b_->is_woken());
  a_->send(b_->mac(), "wake up");
  EXPECT_TRUE(b_->is_woken());
  EXPECT_THAT(b_->take(), ElementsAre("wake up"));
}

TEST_F(UplinkTest, FramesOnALinkOfAProcessThatLeftArrive) {
  make_link();
  b_->send(a_->mac(), "last words");
  b_.reset();
  run_all();
  EXPECT_THAT(a_->take(), ElementsAre("last words"));
  run_all();
  EXPECT_EQ(a_->link().links(), 0u);
  a_->send(0x025FCB000002, "to nobody");
  run_all();
  // A new process gets its number, and receives its frames.
  b_ = join_hub();
  a_->send(b_->mac(), "hello");
  run_all();
  EXPECT_THAT(b_->take(), Contains("hello"));
}

TEST_F(UplinkTest, MulticastGoesToAllByTheHub) {
  const auto c = join_hub();
  make_link();
  a_->send(0xffffffffffff, "to all");
  run_all();
  EXPECT_THAT(b_->take(), ElementsAre("to all"));
  EXPECT_THAT(c->take(), Contains("to all"));
}

TEST_F(UplinkTest, WithATapAllFramesPassTheHub) {
  struct Looker final : fabric::Tap {
    void handle_port(std::uint32_t, std::string_view, wire::Link) override {}
    void handle_frame(std::uint32_t, const wire::Frame&) override { ++frames; }
    int frames = 0;
  } looker;
  start({.tap = &looker});
  for (int i = 0; i < kMany; ++i) a_->send(b_->mac(), "hello");
  run_all();
  EXPECT_EQ(b_->take().size(), kMany);
  EXPECT_EQ(a_->link().links(), 0u);
  EXPECT_EQ(looker.frames, kMany);
}

TEST_F(UplinkTest, AProcessCannotSendNotesAsAnother) {
  make_link();
  const auto c = join_hub();
  using Kind = LinkNote::Kind;
  const auto mac = [](std::uint64_t value) { return wire::MacAddress::from_u64(value); };
  for (const auto kind : {Kind::kGone, Kind::kIntroduced, Kind::kReady, Kind::kSwitched}) {
    c->send(LinkNote{.to = mac(a_->mac()), .from = mac(b_->mac()), .kind = kind}.frame());
    c->send(LinkNote{.to = mac(a_->mac()), .from = mac(c->mac()), .kind = kind}.frame());
  }
  run_all();
  a_->send(b_->mac(), "straight");
  EXPECT_THAT(b_->take(), ElementsAre("straight"));
  EXPECT_EQ(a_->link().links(), 1u);
}

// Each process has a router of this address on its own switch (RoceLink).
TEST_F(UplinkTest, NoFrameComesFromTheRouterOfAnother) {
  const auto forge = [&] {
    b_->send(fabric::frame_of(a_->mac(), RoceLink::mac().to_u64(), "forged"));
    b_->send(a_->mac(), "true");
    run_all();
    EXPECT_THAT(a_->take(), ElementsAre("true"));
  };
  forge();
  make_link();
  forge();
}

// The hub does not wait for a process that claims to be behind the router's address.
TEST_F(UplinkTest, TheHubDoesNotLearnWhereARouterIs) {
  const auto router = RoceLink::mac().to_u64();
  start({.ring_capacity = os::SharedRing::kCapacityMin});
  b_->send(fabric::frame_of(a_->mac(), router, "forged"));
  run_all();
  // More than the hub keeps free in a ring, and less than a ring holds.
  constexpr int kFrames = 90;
  const auto before = hub_->counters().frames;
  for (int i = 0; i != kFrames; ++i) a_->push(router, std::string(1000, 'x'));
  run_hub();
  EXPECT_EQ(hub_->counters().frames, before + kFrames);
}

// The switch of a process floods packets of other machines to groups. Each process has a socket for
// these.
TEST_F(UplinkTest, PacketsOfARouterToGroupsStayInTheProcess) {
  constexpr std::uint64_t kGroup = 0x01'00'5e'01'02'03;
  a_->send(fabric::frame_of(kGroup, RoceLink::mac().to_u64(), "of another machine"));
  a_->send(kGroup, "of the process");
  run_all();
  EXPECT_THAT(b_->take(), ElementsAre("of the process"));
  EXPECT_EQ(hub_->counters().frames, 1u);
}

/// A process's way to other machines, on its switch.
struct Router {
  Router(Process& process, const util::TimeSource& clock)
      : link(process.fabric().create_port("sockets"), wire::MacAddress::from_u64(process.mac()),
             clock, open_roce_socket) {
    link.set_addresses(std::span(&address, 1));
  }
  std::uint64_t sent() const { return link.sockets().at(0)->counters().sent; }

  const wire::Gid address = loopback_address(1);
  RoceLink link;
};

/// A packet from the device of a process to a multicast group, or by its router to a machine.
wire::Frame packet_from(const Process& process, const wire::Gid& source, const wire::Gid& to) {
  wire::IbAddress address;
  address.source_mac = wire::MacAddress::from_u64(process.mac());
  address.destination_mac = to.is_multicast() ? wire::mac_of_group(to) : RoceLink::mac();
  address.source_gid = source;
  address.destination_gid = to;
  address.hop_limit = 64;
  wire::Bth bth;
  bth.opcode = wire::Opcode::UD_SEND_ONLY;
  wire::Frame frame;
  wire::IbHeader(address).emit(bth, {}, 0, frame);
  return frame;
}

// A guest behind a server of the hub sends any frame. Only the device of the process itself sends
// to other machines by its sockets.
TEST_F(UplinkTest, NoStationOfTheHubSendsToOtherMachinesInTheNameOfAProcess) {
  Router router(*a_, clock_);
  const auto group = wire::Gid::from_ipv4(239, 1, 2, 3), machine = loopback_address(2);
  b_->send(packet_from(*a_, router.address, group));
  b_->send(packet_from(*b_, router.address, machine));
  run_all();
  EXPECT_EQ(router.sent(), 0u);
  EXPECT_EQ(a_->link().forged(), 2u);
  a_->send(packet_from(*a_, router.address, group));
  a_->send(packet_from(*a_, router.address, machine));
  EXPECT_EQ(router.sent(), 2u) << "its own";
}

// Otherwise its switch would look for the device behind the hub.
TEST_F(UplinkTest, NoFrameComesFromTheDeviceOfTheProcess) {
  make_link();
  b_->link().handle_frame(fabric::frame_of(a_->mac(), a_->mac(), "forged"));
  b_->link().handle_frame(fabric::frame_of(a_->mac(), b_->mac(), "true"));
  EXPECT_THAT(a_->take(), ElementsAre("true"));
  EXPECT_EQ(a_->link().forged(), 1u);
}

TEST_F(UplinkTest, TheLastNoteOfAProcessCannotBeAnothers) {
  make_link();
  auto c = join_hub();
  const auto mac = [](std::uint64_t value) { return wire::MacAddress::from_u64(value); };
  c->push(LinkNote{.to = mac(a_->mac()), .from = mac(b_->mac()), .kind = LinkNote::Kind::kGone}
              .frame());
  c.reset();
  run_all();
  EXPECT_EQ(a_->link().links(), 1u);
  b_->send(a_->mac(), "straight");
  EXPECT_THAT(a_->take(), ElementsAre("straight"));
}

TEST_F(UplinkTest, ALinkOfManyHasAnEndAndTheHubTakesTheRest) {
  std::vector<std::unique_ptr<Process>> others;
  for (int i = 0; i < 40; ++i) {
    others.push_back(join_hub());
    others.back()->send(a_->mac(), "I am here");
  }
  run_all();
  for (const auto& other : others) {
    (void)other->take();
    for (int i = 0; i < kMany; ++i) a_->send(other->mac(), "hello");
    run_hub();
    other->turn();
    run_all();
    EXPECT_EQ(other->take().size(), static_cast<std::size_t>(kMany));
  }
  EXPECT_EQ(a_->link().links(), 32u);
}

}  // namespace
}  // namespace softhca::hub
