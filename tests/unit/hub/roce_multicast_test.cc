// Packets of multicast groups between processes on addresses of the loopback interface, and of
// other interfaces.
#include "hub/roce_multicast.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <net/if.h>
#include <poll.h>

#include <chrono>
#include <cstdint>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/recorder.h"
#include "fabric/switch.h"
#include "hub/group_address.h"
#include "os/own_network.h"
#include "os/unique_fd.h"
#include "roce_link_host.h"
#include "util/endian.h"
#include "util/log.h"
#include "wire/group_mac.h"

namespace softhca::hub {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

void make_member(LinkedHost& host, const std::vector<wire::Gid>& groups,
                 const char* interface = "lo") {
  host.link().set_groups(groups, ::if_nametoindex(interface));
}

std::vector<std::byte> some_bytes() {
  std::vector<std::byte> bytes(1000);
  for (std::size_t i = 0; i != bytes.size(); ++i) bytes[i] = std::byte(i * 7);
  return bytes;
}

class RoceMulticastTest : public testing::Test {
 protected:
  static const RoceSocket& member(LinkedHost& host) {
    return *host.link().multicast().members().at(0).socket;
  }

  util::Time now_{std::chrono::hours(1)};
  const util::TimeSource clock_ = [this] { return now_; };
  LinkedHost a_{1, clock_}, b_{2, clock_}, c_{3, clock_};
  const wire::Gid group_ = group_address(1);
  const std::vector<std::byte> payload_ = some_bytes();
};

TEST_F(RoceMulticastTest, EachMemberGetsWhatTheHeadersSay) {
  make_member(b_, {group_});
  make_member(c_, {group_});
  auto address = a_.path_to_group(group_);
  address.traffic_class = 0x62;
  address.hop_limit = 7;
  a_.send_to_group(address, payload_, 42);
  for (auto* host : {&b_, &c_}) {
    const auto arrived = host->take();
    ASSERT_EQ(arrived.size(), 1u);
    const auto& packet = arrived[0].packet;
    EXPECT_EQ(packet.address.source_gid, a_.gid());
    EXPECT_EQ(packet.address.destination_gid, group_);
    EXPECT_EQ(packet.address.source_mac, RoceLink::mac());
    EXPECT_EQ(packet.address.destination_mac, wire::mac_of_group(group_));
    EXPECT_EQ(packet.address.traffic_class, 0x62);
    EXPECT_EQ(packet.address.hop_limit, 7);
    EXPECT_EQ(packet.bth.dest_qp, wire::kMulticastQpn);
    EXPECT_EQ(packet.bth.psn, wire::Psn(42));
    EXPECT_EQ(arrived[0].payload, payload_);
    EXPECT_EQ(member(*host).counters().received, 1u);
  }
  EXPECT_THAT(a_.take(), IsEmpty());
  EXPECT_EQ(a_.socket().counters().sent, 1u);
  EXPECT_EQ(a_.link().unfit(), 0u);
}

// The packets to one group are not those to another, of which the host is a member by another
// process.
TEST_F(RoceMulticastTest, AMemberGetsPacketsOfItsGroupsOnly) {
  const auto other = group_address(2);
  make_member(b_, {group_, group_, other});
  EXPECT_EQ(b_.link().multicast().members().size(), 2u);
  make_member(c_, {other});
  a_.send_to_group(a_.path_to_group(group_), payload_, 1);
  a_.send_to_group(a_.path_to_group(other), payload_, 2);
  EXPECT_EQ(b_.take().size(), 2u);
  const auto arrived = c_.take();
  ASSERT_EQ(arrived.size(), 1u);
  EXPECT_EQ(arrived[0].packet.bth.psn, wire::Psn(2));
}

TEST_F(RoceMulticastTest, AGroupThatIsLeftIsSilent) {
  make_member(b_, {group_});
  a_.send_to_group(a_.path_to_group(group_), payload_, 1);
  b_.link().receive(fabric::kAllFrames);
  make_member(b_, {});  // the frame in the switch refers to the socket's memory
  const auto arrived = b_.take();
  ASSERT_EQ(arrived.size(), 1u);
  EXPECT_EQ(arrived[0].payload, payload_);
  a_.send_to_group(a_.path_to_group(group_), payload_, 2);
  EXPECT_THAT(b_.take(), IsEmpty());
  make_member(b_, {group_});
  a_.send_to_group(a_.path_to_group(group_), payload_, 3);
  EXPECT_EQ(b_.take().size(), 1u);
}

// The loopback interface returns them, as some switches do.
TEST_F(RoceMulticastTest, OwnPacketsThatComeBackAreDropped) {
  make_member(a_, {group_});
  make_member(b_, {group_});
  a_.send_to_group(a_.path_to_group(group_), payload_);
  EXPECT_THAT(a_.take(), IsEmpty());
  EXPECT_EQ(member(a_).counters().lost.own, 1u);
  EXPECT_EQ(b_.take().size(), 1u);
}

// A program of the own network sends to other machines itself.
TEST_F(RoceMulticastTest, PacketsOfOtherStationsStayOnTheNetwork) {
  make_member(b_, {group_});
  auto address = a_.path_to_group(group_);
  address.source_mac = wire::MacAddress::from_u64(0x02'00'00'00'07'07);
  a_.flood(LinkedHost::group_frame(address, payload_));
  EXPECT_THAT(b_.take(), IsEmpty());
  EXPECT_EQ(a_.socket().counters().sent, 0u);
}

TEST_F(RoceMulticastTest, OtherFramesToGroupsAreNotSent) {
  make_member(b_, {group_});
  // RoCE v1, which other machines do not get; an Ethernet broadcast; the MAC of another group.
  auto address = a_.path_to_group(group_);
  address.encapsulation = wire::Encapsulation::kRoceV1;
  a_.send_to_group(address, payload_);
  a_.transmit(fabric::frame_of(0xffff'ffff'ffff, address.source_mac.to_u64(), "all"));
  address = a_.path_to_group(group_);
  address.destination_mac = wire::mac_of_group(group_address(2));
  a_.send_to_group(address, payload_);
  EXPECT_EQ(a_.link().unfit(), 0u);
  // A group behind the router.
  a_.send_to_group(a_.path_to(group_), payload_);
  EXPECT_EQ(a_.link().unfit(), 1u);
  EXPECT_THAT(b_.take(), IsEmpty());
  EXPECT_EQ(a_.socket().counters().sent, 0u);
}

TEST_F(RoceMulticastTest, AnAddressWithoutASocketSendsToNoGroup) {
  make_member(b_, {group_});
  auto address = a_.path_to_group(group_);
  address.source_gid = loopback_address(77);
  a_.send_to_group(address, payload_);
  EXPECT_THAT(b_.take(), IsEmpty());
  EXPECT_EQ(a_.link().unfit(), 1u);
}

// A program that polls makes many turns, of which few find a packet.
TEST_F(RoceMulticastTest, SilentGroupsCostNoCallsOfTheirOwn) {
  std::vector<wire::Gid> groups;
  for (unsigned i = 0; i != RoceMulticast::kGroupsMax; ++i) groups.push_back(group_address(i));
  make_member(b_, groups);
  for (unsigned i = 0; i != 8; ++i) {
    EXPECT_THAT(b_.take(), IsEmpty());
    for (const auto group : {5u, 6u + i, 31u}) {
      a_.send_to_group(a_.path_to_group(groups[group]), payload_);
    }
    EXPECT_EQ(b_.take().size(), 3u) << "the next turn takes them all";
  }
  for (const auto& member : b_.link().multicast().members()) {
    EXPECT_EQ(member.socket->empty_receives(), 0u);
  }
}

TEST_F(RoceMulticastTest, PacketsThatATurnHasNoRoomForAreTakenByTheNextTurns) {
  make_member(b_, {group_});
  constexpr unsigned kPackets = 5;
  for (unsigned i = 0; i != kPackets; ++i) {
    a_.send_to_group(a_.path_to_group(group_), payload_, i);
  }
  for (unsigned i = 0; i != kPackets; ++i) EXPECT_EQ(b_.link().receive(1), 1u);
  EXPECT_EQ(b_.link().receive(1), 0u);
  EXPECT_EQ(b_.take().size(), kPackets);
}

// A forked child may have the socket of a group that its parent has left.
TEST_F(RoceMulticastTest, AGroupThatIsLeftIsNotWatched) {
  const auto other = group_address(2);
  make_member(b_, {group_, other});
  const os::UniqueFd held(::dup(member(b_).fd()));
  a_.send_to_group(a_.path_to_group(group_), payload_);
  make_member(b_, {other});
  pollfd wake{.fd = b_.link().multicast().fd(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&wake, 1, 0), 0);
  a_.send_to_group(a_.path_to_group(other), payload_);
  EXPECT_EQ(::poll(&wake, 1, 0), 1);
  EXPECT_EQ(b_.take().size(), 1u);
  EXPECT_EQ(::poll(&wake, 1, 0), 0);
}

TEST_F(RoceMulticastTest, EachGroupBeyondTheMostIsReportedOnce) {
  std::vector<wire::Gid> groups;
  for (unsigned i = 0; i != RoceMulticast::kGroupsMax + 1; ++i) groups.push_back(group_address(i));
  std::vector<std::string> lines;
  util::set_log_sink([&](util::LogLevel, std::string_view line) { lines.emplace_back(line); });
  make_member(b_, groups);
  make_member(b_, groups);
  util::set_log_sink(util::write_to_stderr);
  EXPECT_EQ(b_.link().multicast().members().size(), RoceMulticast::kGroupsMax);
  EXPECT_THAT(lines, ElementsAre(HasSubstr("only 32 groups get a UDP socket")));
  // Room for it, as soon as another is left.
  groups.erase(groups.begin());
  make_member(b_, groups);
  a_.send_to_group(a_.path_to_group(groups.back()), payload_);
  EXPECT_EQ(b_.take().size(), 1u);
}

TEST_F(RoceMulticastTest, AnInterfaceThatIsNotThereIsNamedWithTheGroup) {
  std::vector<std::string> lines;
  util::set_log_sink([&](util::LogLevel, std::string_view line) { lines.emplace_back(line); });
  b_.link().set_groups(std::span(&group_, 1), 0x7fff'0000);
  util::set_log_sink(util::write_to_stderr);
  EXPECT_THAT(lines, ElementsAre(HasSubstr("membership: No such device")));
  make_member(b_, {group_});
  a_.send_to_group(a_.path_to_group(group_), payload_);
  EXPECT_EQ(b_.take().size(), 1u);
}

// The interface that a program names may come later.
TEST_F(RoceMulticastTest, WithoutAnInterfaceThereIsNoGroup) {
  b_.link().set_groups(std::span(&group_, 1), 0);
  EXPECT_THAT(b_.link().multicast().members(), IsEmpty());
  make_member(b_, {group_});
  EXPECT_EQ(b_.link().multicast().members().size(), 1u);
  b_.link().set_groups(std::span(&group_, 1), 0);
  EXPECT_THAT(b_.link().multicast().members(), IsEmpty()) << "it has gone";
}

// With IP_MULTICAST_LOOP the kernel would give them to all programs of the machine, which have them
// by the hub.
TEST(RoceMulticastNetwork, TheKernelReturnsNothing) {
  const os::OwnNetwork network;
  if (!network.made()) GTEST_SKIP() << "no namespaces for users here";
  os::OwnNetwork::run(
      "ip link add va type veth peer name vb && ip link set va up && ip link set vb up &&"
      " ip address add 10.9.0.1/24 dev va");
  LinkedHost host(1, wire::Gid::from_ipv4(10, 9, 0, 1), util::monotonic_now);
  const auto group = group_address(1);
  make_member(host, {group}, "va");
  host.send_to_group(host.path_to_group(group), some_bytes());
  EXPECT_EQ(host.socket().counters().sent, 1u);
  EXPECT_THAT(host.take(), IsEmpty());
  EXPECT_EQ(host.link().multicast().members().at(0).socket->counters().lost.own, 0u);
}

TEST(RoceMulticastNetwork, Ipv6GroupsOfEachScope) {
  const os::OwnNetwork network;
  if (!network.made()) GTEST_SKIP() << "no namespaces for users here";
  os::OwnNetwork::run("ip link add va type veth peer name vb");
  for (const std::string name : {"va", "vb"}) {
    std::ofstream("/proc/sys/net/ipv6/conf/" + name + "/disable_ipv6") << 0;
    os::OwnNetwork::run("ip link set " + name + " up");
  }
  os::OwnNetwork::run(
      "ip address add fd00::1/64 dev va nodad && ip address add fd00::2/64 dev vb nodad");
  LinkedHost a(1, ipv6_address(0xfd00, 1), util::monotonic_now),
      b(2, ipv6_address(0xfd00, 2), util::monotonic_now);
  ASSERT_EQ(a.link().sockets().size(), 1u);
  for (const std::uint16_t scope : {0xff12, 0xff15, 0xff1e}) {
    const auto group = ipv6_address(scope, 9);
    make_member(a, {}, "va");
    make_member(b, {group}, "vb");
    auto address = a.path_to_group(group);
    address.hop_limit = 5;
    a.send_to_group(address, some_bytes());
    const auto arrived = b.take();
    ASSERT_EQ(arrived.size(), 1u) << std::hex << scope;
    EXPECT_EQ(arrived[0].packet.address.destination_gid, group);
    EXPECT_EQ(arrived[0].packet.address.hop_limit, 5);
    EXPECT_EQ(arrived[0].payload, some_bytes());
  }
}

}  // namespace
}  // namespace softhca::hub
