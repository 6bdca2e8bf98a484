// The sockets of an address that several processes share: real ones, on loopback.
#include "hub/roce_group.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "hub/udp_sender.h"
#include "wire/address_text.h"

namespace softhca::hub {
namespace {

using testing::HasSubstr;
using Why = RoceRefusal::Kind;

class RoceGroupTest : public testing::TestWithParam<wire::Gid> {
 protected:
  void SetUp() override {
    RoceRefusal refusal;
    group = RoceGroup::open(address, port, refusal);
    ASSERT_TRUE(group) << refusal.explain(address);
  }
  int admit(RoceBlock block) {
    RoceRefusal refusal;
    const int fd = group->admit(block, refusal);
    EXPECT_GE(fd, 0) << refusal.explain(address);
    return fd;
  }
  void send(RoceBlock block, std::uint8_t mark) {
    sender.send(address, port, packet_to(block, mark));
  }

  const wire::Gid address = GetParam();
  UdpSender sender{address};
  const std::uint16_t port = free_port(address);
  std::unique_ptr<RoceGroup> group;
};

const wire::Gid kLoopback6 = [] {
  wire::Gid gid;
  gid.bytes[15] = std::byte{1};
  return gid;
}();

INSTANTIATE_TEST_SUITE_P(Loopback, RoceGroupTest,
                         testing::Values(wire::Gid::from_ipv4(127, 0, 0, 1), kLoopback6),
                         [](const auto& one) { return one.param.is_ipv4() ? "Ipv4" : "Ipv6"; });

TEST_P(RoceGroupTest, APacketGoesToTheMemberOfItsBlock) {
  const std::array<int, 3> fds{admit(1), admit(2), admit(3)};
  for (std::uint8_t round = 0; round != 3; ++round) {
    for (RoceBlock block = 1; block != 4; ++block) {
      send(block, round);
    }
  }
  for (RoceBlock block = 1; block != 4; ++block) {
    for (std::uint8_t round = 0; round != 3; ++round) {
      ASSERT_EQ(received_at(fds[block - 1u]), packet_to(block, round)) << int(block);
    }
  }
  for (const int fd : fds) EXPECT_TRUE(is_quiet(fd));
  EXPECT_EQ(group->sockets(), 4u);
  EXPECT_EQ(group->counters().dropped, 0u);
}

TEST_P(RoceGroupTest, PacketsForTheHubAndForNoMemberGoToMember0) {
  const int fd = admit(1);
  sender.send(address, port, packet_to(0, 1));
  sender.send(address, port, packet_to(2, 2));
  sender.send(address, port, packet_to(255, 3));
  const std::vector<std::byte> tooShort(5, std::byte{1});
  sender.send(address, port, tooShort);
  std::array<std::byte, 64> buffer;
  RoceGroup::Datagram datagram;
  for (const auto& expected : {packet_to(0, 1), packet_to(2, 2), packet_to(255, 3), tooShort}) {
    ASSERT_TRUE(is_readable(group->own()));
    ASSERT_TRUE(group->receive(buffer, datagram));
    EXPECT_TRUE(std::ranges::equal(datagram.packet, expected));
  }
  EXPECT_FALSE(group->receive(buffer, datagram));
  EXPECT_TRUE(is_quiet(fd));
}

TEST_P(RoceGroupTest, ADatagramOfMember0HasItsSource) {
  sender.set_traffic_class(0x62);
  sender.set_hop_limit(37);
  sender.send(address, port, packet_to(0, 1));
  std::array<std::byte, 4> buffer;
  RoceGroup::Datagram datagram;
  ASSERT_TRUE(is_readable(group->own()));
  ASSERT_TRUE(group->receive(buffer, datagram));
  EXPECT_EQ(datagram.from, address);
  EXPECT_EQ(datagram.source_port, sender.port());
  EXPECT_EQ(datagram.traffic_class, 0x62);
  EXPECT_EQ(datagram.hop_limit, 37);
  EXPECT_EQ(datagram.packet.size(), buffer.size()) << "the rest has no room";
}

// IBTA Annex A17 17.3.1: a RoCEv2 packet has no UDP checksum.
TEST_P(RoceGroupTest, PacketsWithoutAChecksumArrive) {
  const int fd = admit(1);
  sender.send_no_checksums();
  send(1, 1);
  EXPECT_EQ(received_at(fd), packet_to(1, 1));
  send(0, 2);
  EXPECT_TRUE(is_readable(group->own()));
}

TEST_P(RoceGroupTest, BlocksBetweenHaveMembersThatTakeNothing) {
  const int fd = admit(3);
  EXPECT_EQ(group->sockets(), 4u);
  send(1, 1);
  send(2, 2);
  send(3, 3);
  EXPECT_EQ(received_at(fd), packet_to(3, 3));
  EXPECT_EQ(group->counters().dropped, 2u);
  EXPECT_TRUE(is_quiet(group->own()));
}

TEST_P(RoceGroupTest, WhatArrivesForAProcessThatHasLeftIsDroppedAndCounted) {
  const int fd = admit(1);
  const int other = admit(2);
  send(1, 1);
  EXPECT_EQ(received_at(fd), packet_to(1, 1));
  group->leave(1);
  EXPECT_FALSE(group->has(1));
  send(1, 2);
  send(1, 3);
  send(2, 4);
  EXPECT_EQ(received_at(other), packet_to(2, 4)) << "the others keep their numbers";
  EXPECT_EQ(group->counters().dropped, 2u);
  EXPECT_EQ(group->sockets(), 3u);
}

TEST_P(RoceGroupTest, ABlockThatIsGivenOutAgainHasNoPacketsOfBefore) {
  const int fd = admit(1);
  send(1, 1);
  ASSERT_TRUE(is_readable(fd)) << "its process has not read it";
  group->leave(1);
  send(1, 2);
  const int again = admit(1);
  send(1, 3);
  EXPECT_EQ(received_at(again), packet_to(1, 3));
  EXPECT_TRUE(is_quiet(again));
  EXPECT_EQ(group->counters().dropped, 1u);
  group->leave(1);
  send(1, 4);
  EXPECT_EQ(group->counters().dropped, 2u) << "what its process lost is not among them";
}

TEST_P(RoceGroupTest, ABlockIsGivenOutAgainOnlyWhenItsSocketIsEmpty) {
  constexpr unsigned kLeft = RoceGroup::kDrainedAtOnce + 1;
  const int fd = admit(1);
  for (unsigned i = 0; i != kLeft; ++i) send(1, 1);
  ASSERT_TRUE(is_readable(fd));
  group->leave(1);
  EXPECT_FALSE(is_quiet(fd)) << "a turn of the loop does not read without end";
  RoceRefusal refusal;
  EXPECT_EQ(group->admit(1, refusal), -1);
  EXPECT_EQ(refusal.kind, Why::kSpoiled);
  unsigned drains = 0;
  while (group->drain()) ++drains;
  EXPECT_EQ(drains, 1u);
  EXPECT_TRUE(is_quiet(admit(1)));
}

TEST_P(RoceGroupTest, ADuplicateOfADepartedProcessChangesNoNumbers) {
  const os::UniqueFd duplicate(::dup(admit(1)));
  const int other = admit(2);
  group->leave(1);
  send(2, 1);
  EXPECT_EQ(received_at(other), packet_to(2, 1));
}

// A connected socket would receive from one peer only.
TEST_P(RoceGroupTest, ASocketThatItsProcessHasConnectedIsResetForTheNext) {
  const int fd = admit(1);
  const UdpSender stranger(address);
  stranger.connect_to_me(fd);
  group->leave(1);
  const int again = admit(1);
  send(1, 5);
  EXPECT_EQ(received_at(again), packet_to(1, 5));
}

TEST_P(RoceGroupTest, ASocketWhoseFilterIsLockedIsGivenToNobody) {
  const int fd = admit(1);
  const int on = 1;
  ASSERT_EQ(::setsockopt(fd, SOL_SOCKET, SO_LOCK_FILTER, &on, sizeof on), 0);
  group->leave(1);
  RoceRefusal refusal;
  EXPECT_EQ(group->admit(1, refusal), -1);
  EXPECT_EQ(refusal.kind, Why::kSpoiled);
  const int other = admit(2);
  send(2, 1);
  EXPECT_EQ(received_at(other), packet_to(2, 1));
}

TEST_P(RoceGroupTest, TheOldestProcessIsTheFirst) {
  admit(5);
  admit(2);
  admit(3);
  group->leave(2);
  EXPECT_THAT(std::vector(group->blocks().begin(), group->blocks().end()),
              testing::ElementsAre(5, 3));
  EXPECT_TRUE(group->has(5));
  EXPECT_FALSE(group->has(2));
  EXPECT_FALSE(group->has(200));
}

TEST_P(RoceGroupTest, AllBlocksCanHaveMembers) {
  for (unsigned block = 1; block != 256; ++block) admit(static_cast<RoceBlock>(block));
  send(255, 1);
  EXPECT_EQ(received_at(group->member(255)), packet_to(255, 1));
  send(128, 2);
  EXPECT_EQ(received_at(group->member(128)), packet_to(128, 2));
}

// It would otherwise join the group of another hub of the same user, and steal its packets.
TEST_P(RoceGroupTest, APortThatHasAGroupIsTaken) {
  RoceRefusal refusal;
  EXPECT_EQ(RoceGroup::open(address, port, refusal), nullptr);
  EXPECT_EQ(refusal.kind, Why::kPortTaken);
  EXPECT_EQ(refusal.holder, ::geteuid());
  EXPECT_THAT(refusal.explain(address), HasSubstr(text_of(address) + " is taken by another"));
  EXPECT_THAT(refusal.explain(address), HasSubstr("--fabric"));
}

TEST_P(RoceGroupTest, ThePortIsFreeWithTheGroup) {
  admit(2);
  group.reset();
  RoceRefusal refusal;
  EXPECT_TRUE(RoceGroup::open(address, port, refusal));
}

TEST(RoceGroupRefusalTest, AnAddressOfAnotherMachineIsRefused) {
  RoceRefusal refusal;
  const auto elsewhere = wire::Gid::from_ipv4(240, 0, 0, 1);
  EXPECT_EQ(RoceGroup::open(elsewhere, 4791, refusal), nullptr);
  EXPECT_EQ(refusal.kind, Why::kNoSuchAddress);
  EXPECT_THAT(refusal.explain(elsewhere), HasSubstr("the interface has gone or lost it"));
}

TEST(RoceGroupRefusalTest, AddressesOfNoSingleMachineAreRefused) {
  wire::Gid link_local;
  link_local.bytes[0] = std::byte{0xfe};
  link_local.bytes[1] = std::byte{0x80};
  for (const auto& address :
       {wire::Gid{}, wire::Gid::from_ipv4(0), link_local, wire::Gid::from_ipv4(224, 0, 0, 1)}) {
    RoceRefusal refusal;
    EXPECT_EQ(RoceGroup::open(address, 4791, refusal), nullptr) << text_of(address);
    EXPECT_EQ(refusal.kind, Why::kUnfit) << text_of(address);
  }
}

}  // namespace
}  // namespace softhca::hub
