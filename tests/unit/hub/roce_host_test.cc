// RoCEv2 by UDP of a hub's processes: blocks, addresses, and messages to QP1, on virtual time.
#include "hub/roce_host.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "hub/cm_packets.h"
#include "hub/udp_sender.h"

namespace softhca::hub {
namespace {

using namespace std::chrono_literals;
using Why = RoceRefusal::Kind;

class RoceHostTest : public testing::Test {
 protected:
  struct Delivered {
    unsigned number;
    wire::Gid from, to;
    std::uint16_t source_port;
    std::vector<std::byte> packet;
  };

  explicit RoceHostTest(std::size_t addresses_max = 16)
      : host(*loop,
             {.port = port,
              .addresses_max = addresses_max,
              .clock = [this] { return now; },
              .publish = [this](RoceBlock block, unsigned number) { published[block] = number; }},
             [this](unsigned number, const ForwardedDatagram& one) {
               if (full) return false;
               const auto& its = one.datagram;
               delivered.push_back({number,
                                    its.from,
                                    one.to,
                                    its.source_port,
                                    {its.packet.begin(), its.packet.end()}});
               return true;
             }) {}

  RoceHost::Seat join(unsigned number, const wire::Gid& at, Why expected = Why::kNone) {
    RoceRefusal refusal;
    const auto seat = host.join(number, at, refusal);
    EXPECT_EQ(refusal.kind, expected) << refusal.explain(at);
    return seat;
  }
  RoceHost::Seat join(unsigned number) { return join(number, address); }
  /// Sends to QP1, and lets the host work.
  void send(const CmPacket& packet) {
    sender.send(address, port, packet);
    turns();
  }
  void turns(int count = 8) {
    for (int i = 0; i != count; ++i) loop->run_once(util::Time::min());
  }

  const wire::Gid address = wire::Gid::from_ipv4(127, 0, 0, 1);
  const wire::Gid second = wire::Gid::from_ipv4(127, 0, 0, 2);
  UdpSender sender{address};
  const std::uint16_t port = free_port(address);
  std::unique_ptr<os::EventLoop> loop = *os::EventLoop::create();
  util::Time now{1h};
  bool full = false;
  std::vector<Delivered> delivered;
  std::map<RoceBlock, unsigned> published;
  const CmService service{.id = kService, .address = CmService::all()};
  RoceHost host;
};

TEST_F(RoceHostTest, EachProcessHasABlockAndASocket) {
  const auto a = join(17), b = join(4);
  EXPECT_EQ(a.block, 1);
  EXPECT_EQ(b.block, 2);
  sender.send(address, port, packet_to(1, 7));
  sender.send(address, port, packet_to(2, 8));
  EXPECT_EQ(received_at(a.socket), packet_to(1, 7));
  EXPECT_EQ(received_at(b.socket), packet_to(2, 8));
  EXPECT_EQ(host.counters().joined, 2u);
}

TEST_F(RoceHostTest, AProcessThatAsksAgainGetsTheSameSocket) {
  const auto once = join(17), twice = join(17);
  EXPECT_EQ(once.block, twice.block);
  EXPECT_EQ(once.socket, twice.socket);
}

TEST_F(RoceHostTest, AProcessHasTheSameBlockAtAllItsAddresses) {
  join(17);
  const auto a = join(4, second), b = join(17, second), c = join(4);
  EXPECT_EQ(a.block, 2);
  EXPECT_EQ(b.block, 1);
  EXPECT_EQ(c.block, 2);
  sender.send(second, port, packet_to(1, 3));
  EXPECT_EQ(received_at(b.socket), packet_to(1, 3));
  EXPECT_EQ(host.addresses(), 2u);
}

TEST_F(RoceHostTest, ABlockIsGivenOutAgainAfterARest) {
  join(17);
  const auto b = join(4);
  host.forget(17);
  sender.send(address, port, packet_to(1, 1));
  sender.send(address, port, packet_to(2, 2));
  EXPECT_EQ(received_at(b.socket), packet_to(2, 2));
  EXPECT_EQ(host.counters().groups.dropped, 1u);
  now += RoceBlocks::kRest - 1ns;
  EXPECT_EQ(join(20).block, 3);
  now += 1ns;
  const auto again = join(21);
  EXPECT_EQ(again.block, 1);
  EXPECT_TRUE(is_quiet(again.socket));
  sender.send(address, port, packet_to(1, 3));
  EXPECT_EQ(received_at(again.socket), packet_to(1, 3));
}

TEST_F(RoceHostTest, WhatADepartedProcessLeavesIsDroppedInTurnsOfTheLoop) {
  const auto a = join(17);
  for (unsigned i = 0; i != RoceGroup::kDrainedAtOnce + 1; ++i) {
    sender.send(address, port, packet_to(1, 1));
  }
  ASSERT_TRUE(is_readable(a.socket));
  host.forget(17);
  EXPECT_FALSE(is_quiet(a.socket));
  turns();
  EXPECT_TRUE(is_quiet(a.socket));
}

TEST_F(RoceHostTest, AProcessKeepsItsBlockUntilItLeavesTheHub) {
  join(17);
  join(17, second);
  host.leave(17, address);
  EXPECT_EQ(join(17).block, 1);
  host.leave(17, address);
  host.leave(17, second);
  EXPECT_EQ(join(4).block, 2);
  EXPECT_EQ(join(17).block, 1);
  host.leave(17, address);
  EXPECT_TRUE(host.listen(17, service)) << "it may get an address again";
  host.leave(99, second);
  host.forget(99);
}

// A process that ends closes its sockets a moment later.
TEST_F(RoceHostTest, AnAddressIsKeptForAWhileAndThenReleased) {
  join(17);
  host.forget(17);
  now += RoceHost::kLinger - 1ns;
  host.close_idle();
  EXPECT_EQ(host.addresses(), 1u);
  now += 1ns;
  host.close_idle();
  EXPECT_EQ(host.addresses(), 0u);
  RoceRefusal refusal;
  EXPECT_TRUE(RoceGroup::open(address, port, refusal)) << "another program can have the port";
}

TEST_F(RoceHostTest, AnAddressWithAProcessIsKept) {
  join(17);
  join(4);
  host.forget(17);
  now += 1h;
  host.close_idle();
  EXPECT_EQ(host.addresses(), 1u);
}

// A device takes its QP numbers before it has an address.
TEST_F(RoceHostTest, AProcessHasABlockBeforeItHasAnAddress) {
  RoceRefusal refusal;
  EXPECT_EQ(host.share(17, refusal), 1);
  EXPECT_EQ(host.share(17, refusal), 1);
  EXPECT_EQ(host.share(4, refusal), 2);
  EXPECT_FALSE(refusal);
  EXPECT_EQ(join(4).block, 2);
  EXPECT_EQ(join(17).block, 1);
  EXPECT_EQ(host.process_of(2), 4u);
  EXPECT_THAT(published, testing::ElementsAre(testing::Pair(1, 17u), testing::Pair(2, 4u)));
  host.forget(17);
  EXPECT_EQ(host.process_of(1), 0u);
  EXPECT_EQ(published.at(1), 0u);
  EXPECT_EQ(host.share(17, refusal), 3) << "block 1 rests";
}

TEST_F(RoceHostTest, BlocksAreRefusedWhenNoneIsLeft) {
  RoceRefusal refusal;
  for (unsigned number = 1; number != 256; ++number) EXPECT_EQ(host.share(number, refusal), number);
  EXPECT_EQ(host.share(1000, refusal), 0);
  EXPECT_EQ(refusal.kind, Why::kTooManyProcesses);
  EXPECT_EQ(host.counters().refused, 1u);
}

TEST_F(RoceHostTest, ABlockWithASpoiledSocketIsNotShared) {
  const auto hostile = join(17);
  const int on = 1;
  ASSERT_EQ(::setsockopt(hostile.socket, SOL_SOCKET, SO_LOCK_FILTER, &on, sizeof on), 0);
  join(4);
  host.forget(17);
  now += RoceBlocks::kRest;
  RoceRefusal refusal;
  EXPECT_EQ(host.share(18, refusal), 3);
  EXPECT_EQ(host.share(19, refusal), 4);
}

// As before: stations of the hub reach it, if no other machine does.
TEST_F(RoceHostTest, AProcessWithoutASocketHasTheAddressOnTheHub) {
  RoceRefusal refusal;
  const auto other = RoceGroup::open(address, port, refusal);
  ASSERT_TRUE(other);
  host.share(17, refusal);
  join(17, address, Why::kPortTaken);
  EXPECT_EQ(host.route({.from = second, .to = address}, cm_request(kService, 1)), 17u);
  EXPECT_EQ(host.route({.from = second, .to = second}, cm_request(kService, 2)), 0u);
  host.leave(17, address);
  EXPECT_EQ(host.route({.from = second, .to = address}, cm_request(kService, 3)), 0u);
}

TEST_F(RoceHostTest, TheAddressesOfAProcessAreBounded) {
  RoceRefusal refusal;
  host.share(17, refusal);
  for (unsigned i = 0; i != RoceHost::kAddressesMax; ++i) {
    host.join(17, wire::Gid::from_ipv4(240, 0, 0, static_cast<std::uint8_t>(i)), refusal);
  }
  const auto further = wire::Gid::from_ipv4(240, 0, 1, 1);
  host.join(17, further, refusal);
  EXPECT_EQ(refusal.kind, Why::kTooManyAddresses);
  EXPECT_EQ(host.route({.from = second, .to = further}, cm_request(kService, 1)), 0u);
}

class RoceHostWithFewAddressesTest : public RoceHostTest {
 protected:
  RoceHostWithFewAddressesTest() : RoceHostTest(1) {}
};

TEST_F(RoceHostWithFewAddressesTest, AddressesAreBounded) {
  join(17);
  join(17, second, Why::kTooManyAddresses);
  EXPECT_EQ(host.counters().refused, 1u);
  host.forget(17);
  now += RoceHost::kLinger;
  EXPECT_EQ(join(4, second).block, 1) << "the first address is no longer in use";
}

TEST_F(RoceHostTest, ProcessesAreBounded) {
  for (unsigned number = 1; number != 256; ++number) EXPECT_EQ(join(number).block, number);
  join(1000, address, Why::kTooManyProcesses);
  host.forget(9);
  join(1000, address, Why::kTooManyProcesses);
  now += RoceBlocks::kRest;
  EXPECT_EQ(join(1000).block, 9);
}

TEST_F(RoceHostTest, ASpoiledSocketIsPassedOver) {
  const auto hostile = join(17);
  const int on = 1;
  ASSERT_EQ(::setsockopt(hostile.socket, SOL_SOCKET, SO_LOCK_FILTER, &on, sizeof on), 0);
  join(4);
  host.forget(17);
  now += RoceBlocks::kRest;
  EXPECT_EQ(join(18).block, 3);
  EXPECT_EQ(join(19).block, 4);
}

TEST_F(RoceHostTest, RefusedProcessesHoldNothing) {
  join(17, wire::Gid::from_ipv4(240, 0, 0, 1), Why::kNoSuchAddress);
  EXPECT_FALSE(host.listen(17, service));
  EXPECT_EQ(host.addresses(), 0u);
  EXPECT_EQ(join(4).block, 1);
}

TEST_F(RoceHostTest, ARefusedAddressIsTriedAgainAfterAWhile) {
  RoceRefusal refusal;
  auto other = RoceGroup::open(address, port, refusal);
  ASSERT_TRUE(other);
  join(17, address, Why::kPortTaken);
  other.reset();
  now += RoceHost::kRefusedFor - 1ns;
  join(17, address, Why::kPortTaken);
  now += 1ns;
  EXPECT_EQ(join(17).block, 1);
}

TEST_F(RoceHostWithFewAddressesTest, RefusedAddressesAreBounded) {
  join(17, wire::Gid::from_ipv4(240, 0, 0, 1), Why::kNoSuchAddress);
  join(17, wire::Gid::from_ipv4(240, 0, 0, 2), Why::kTooManyAddresses);
  now += RoceHost::kRefusedFor;
  join(17, wire::Gid::from_ipv4(240, 0, 0, 2), Why::kNoSuchAddress);
}

TEST_F(RoceHostWithFewAddressesTest, RefusedAddressesOfOneProcessKeepNoOtherFromAnAddress) {
  join(17, wire::Gid::from_ipv4(240, 0, 0, 1), Why::kNoSuchAddress);
  join(4, wire::Gid::from_ipv4(240, 0, 0, 2), Why::kNoSuchAddress);
  join(4, wire::Gid::from_ipv4(240, 0, 0, 3), Why::kTooManyAddresses);
  EXPECT_EQ(join(18).block, 1);
}

TEST_F(RoceHostTest, ARequestIsForwardedToItsListener) {
  join(17);
  join(4);
  ASSERT_TRUE(host.listen(4, service));
  const auto packet = cm_request(kService, 5);
  send(packet);
  ASSERT_EQ(delivered.size(), 1u);
  EXPECT_EQ(delivered[0].number, 4u);
  EXPECT_EQ(delivered[0].from, address);
  EXPECT_EQ(delivered[0].to, address);
  EXPECT_EQ(delivered[0].source_port, sender.port());
  EXPECT_TRUE(std::ranges::equal(delivered[0].packet, packet.bytes));
  host.unlisten(4, service);
  now += CmDispatch::kListensAgain;
  send(cm_request(kService, 6));
  ASSERT_EQ(delivered.size(), 2u);
  EXPECT_EQ(delivered[1].number, 17u) << "the oldest process refuses it";
}

TEST_F(RoceHostTest, AListenerOfAnAddressGetsNoRequestsToAnother) {
  join(17);
  join(4);
  join(17, second);
  join(4, second);
  ASSERT_TRUE(host.listen(17, {.id = kService, .address = second}));
  ASSERT_TRUE(host.listen(4, {.id = kService, .address = address}));
  send(cm_request(kService, 5));
  sender.send(second, port, cm_request(kService, 6));
  turns();
  ASSERT_EQ(delivered.size(), 2u);
  EXPECT_EQ(delivered[0].number, 4u);
  EXPECT_EQ(delivered[1].number, 17u);
  EXPECT_EQ(delivered[1].to, second);
}

TEST_F(RoceHostTest, AReplyIsForwardedByTheUpperBitsOfItsReceiversNumber) {
  join(17);
  join(4);
  send(cm_packet(Cm::REP, 1, 0x02'00'00'09));
  send(cm_packet(Cm::REP, 1, 0x01'00'00'09));
  ASSERT_EQ(delivered.size(), 2u);
  EXPECT_EQ(delivered[0].number, 4u);
  EXPECT_EQ(delivered[1].number, 17u);
}

TEST_F(RoceHostTest, OtherPacketsAtTheHubsSocketAreCounted) {
  join(17);
  sender.send(address, port, packet_to(200, 1));
  sender.send(address, port, packet_to(0, 1));
  send(cm_packet(Cm::REP, 1, 0x09'00'00'09));
  EXPECT_TRUE(delivered.empty());
  EXPECT_EQ(host.counters().cm.malformed, 2u);
  EXPECT_EQ(host.counters().cm.unknown, 1u);
}

TEST_F(RoceHostTest, AMessageForAFullRingIsLostAndCounted) {
  join(17);
  full = true;
  send(cm_packet(Cm::REP, 1, 0x01'00'00'09));
  full = false;
  send(cm_packet(Cm::RTU, 1, 0x01'00'00'09));
  EXPECT_EQ(delivered.size(), 1u);
  EXPECT_EQ(host.counters().lost, 1u);
}

TEST_F(RoceHostTest, ATurnOfTheLoopTakesOnlySomeOfAFlood) {
  join(17);
  for (int i = 0; i != 100; ++i) sender.send(address, port, packet_to(200, 1));
  turns(1);
  const auto first = host.counters().cm.malformed;
  EXPECT_GT(first, 0u);
  EXPECT_LT(first, 100u);
  turns();
  EXPECT_EQ(host.counters().cm.malformed, 100u);
}

}  // namespace
}  // namespace softhca::hub
