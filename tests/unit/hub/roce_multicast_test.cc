// Multicast groups on UDP sockets: processes on addresses of the loopback interface.
#include "hub/roce_multicast.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <net/if.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <memory>
#include <new>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "fabric/recorder.h"
#include "fabric/switch.h"
#include "os/forbidden_call.h"
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

/// A group that other test processes do not use.
wire::Gid group_address(unsigned number) {
  const auto pid = static_cast<unsigned>(::getpid());
  return wire::Gid::from_ipv4(239, static_cast<std::uint8_t>(1 + pid / 256 % 250),
                              static_cast<std::uint8_t>(pid), static_cast<std::uint8_t>(number));
}

wire::Gid ipv6(std::uint16_t head, std::uint8_t tail) {
  wire::Gid gid;
  util::store_be16(gid.bytes.data(), head);
  gid.bytes.back() = std::byte{tail};
  return gid;
}

void make_member(LinkedHost& host, const std::vector<wire::Gid>& groups,
                 const char* interface = "lo") {
  host.link().set_groups(groups, ::if_nametoindex(interface));
}

std::vector<std::byte> some_bytes() {
  std::vector<std::byte> bytes(1000);
  for (std::size_t i = 0; i != bytes.size(); ++i) bytes[i] = std::byte(i * 7);
  return bytes;
}

/// The groups of a process whose sockets the test opens or refuses.
class RoceMulticastSockets : public testing::Test {
 protected:
  RoceMulticastSockets() {
    util::set_log_sink(
        [this](util::LogLevel, std::string_view line) { lines_.emplace_back(line); });
  }
  ~RoceMulticastSockets() override { util::set_log_sink(util::write_to_stderr); }

  util::Result<std::unique_ptr<RoceSocket>> open(const wire::Gid& group, unsigned interface) {
    ++opens_;
    tried_.insert(group);
    if (!has_memory_) throw std::bad_alloc();
    return RoceMulticast::open_socket(group, interface);
  }
  void set_groups(std::span<const wire::Gid> groups) {
    multicast_.set_groups(groups, ::if_nametoindex("lo"), *port_);
  }
  static std::vector<wire::Gid> groups(unsigned count) {
    std::vector<wire::Gid> all;
    for (unsigned i = 0; i != count; ++i) {
      all.push_back(group_address(0));
      util::store_be16(all.back().bytes.data() + 14, static_cast<std::uint16_t>(i));
    }
    return all;
  }
  static constexpr std::size_t kMost = RoceMulticast::kGroupsMax;
  std::size_t members() const { return multicast_.members().size(); }

  const wire::Gid group_ = group_address(1);
  bool has_memory_ = true;
  unsigned opens_ = 0;         ///< attempts
  std::set<wire::Gid> tried_;  ///< their groups
  std::vector<std::string> lines_;
  util::Time now_{std::chrono::hours(1)};
  fabric::Switch network_;
  std::unique_ptr<fabric::Port> port_ = network_.create_port("sockets");
  RoceMulticast multicast_{
      RoceLink::mac(), [this] { return now_; },
      [this](const wire::Gid& group, unsigned interface) { return open(group, interface); }};
};

// A process with a limit of its memory (ulimit -v) goes on.
TEST_F(RoceMulticastSockets, AGroupWithoutMemoryIsNamedOnceAndJoinedLater) {
  has_memory_ = false;
  for (int i = 0; i != 2; ++i) EXPECT_NO_THROW(set_groups(groups(1)));
  EXPECT_EQ(members(), 0u);
  EXPECT_THAT(lines_, ElementsAre(HasSubstr("do not arrive: no memory")));
  has_memory_ = true;
  set_groups(groups(1));
  EXPECT_EQ(members(), 1u);
}

// QPs leave their groups in a destructor, where nothing may fail.
TEST_F(RoceMulticastSockets, AProcessThatLeavesAGroupJoinsNoOther) {
  const auto all = groups(2);
  set_groups(std::span(all).first(1));
  has_memory_ = false;
  set_groups(all);
  EXPECT_EQ(opens_, 2u);
  multicast_.leave(all[0], *port_);
  EXPECT_EQ(members(), 0u);
  multicast_.leave(all[1], *port_);
  EXPECT_EQ(opens_, 2u);
  set_groups(std::span(all).last(1));
  EXPECT_EQ(lines_.size(), 2u) << "it has left the group that was refused, too";
}

// A device has up to 8192 groups, and the kernel may refuse all of them.
TEST_F(RoceMulticastSockets, EachOfAThousandGroupsIsTriedOnceAndThenAFewAtATime) {
  constexpr unsigned kGroups = 1000;
  has_memory_ = false;
  set_groups({});
  const auto all = groups(kGroups);
  for (const auto& group : all) multicast_.join(group);
  EXPECT_EQ(opens_, kGroups);
  tried_.clear();
  for (unsigned left = kGroups; left != 0; left -= std::min(left, unsigned{kMost})) {
    opens_ = 0;
    set_groups(all);
    EXPECT_EQ(opens_, kMost);
  }
  EXPECT_EQ(tried_.size(), kGroups) << "each has its turn";
  has_memory_ = true;
  set_groups(all);
  EXPECT_EQ(members(), kMost);
  opens_ = 0;
  set_groups(all);
  EXPECT_EQ(opens_, 0u) << "there is no room";
}

TEST_F(RoceMulticastSockets, GroupsWithoutASocketDoNotFillTheLog) {
  has_memory_ = false;
  set_groups({});
  const auto all = groups(1000);
  for (const auto& group : std::span(all).first(999)) multicast_.join(group);
  EXPECT_EQ(lines_.size(), 4u);
  now_ += std::chrono::seconds(10);
  multicast_.join(all.back());
  ASSERT_EQ(lines_.size(), 5u);
  EXPECT_THAT(lines_.back(), HasSubstr("no memory (995 lines like this not shown)"));
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
  LinkedHost a(1, ipv6(0xfd00, 1), util::monotonic_now), b(2, ipv6(0xfd00, 2), util::monotonic_now);
  ASSERT_EQ(a.link().sockets().size(), 1u);
  for (const std::uint16_t scope : {0xff12, 0xff15, 0xff1e}) {
    const auto group = ipv6(scope, 9);
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

/// A network with an interface "va" that has IPv6.
class RoceMulticastInterface : public RoceMulticastSockets {
 protected:
  void SetUp() override {
    if (!network_of_test_.made()) GTEST_SKIP() << "no namespaces for users here";
    os::OwnNetwork::run("ip link add va type veth peer name vb");
    std::ofstream("/proc/sys/net/ipv6/conf/va/disable_ipv6") << 0;
    os::OwnNetwork::run("ip link set va up");
  }
  void set_groups_on_va(std::span<const wire::Gid> groups) {
    multicast_.set_groups(groups, ::if_nametoindex("va"), *port_);
  }

  const os::OwnNetwork network_of_test_;
};

// As Linux before 5.7 for a process without CAP_NET_RAW. Packets of other interfaces would arrive.
TEST_F(RoceMulticastInterface, AnIpv6GroupThatIsNotBoundToItsInterfaceIsRefused) {
  const std::vector all{group_, ipv6(0xff1e, 9)};
  std::thread([&] {
    ASSERT_TRUE(test::forbid_socket_option(SOL_SOCKET, SO_BINDTODEVICE, EPERM));
    set_groups_on_va(all);
  }).join();
  ASSERT_EQ(members(), 1u);
  EXPECT_EQ(multicast_.members()[0].socket->address(), group_);
  EXPECT_THAT(lines_, ElementsAre(testing::AllOf(HasSubstr("ff1e::9"), HasSubstr("Linux 5.7"),
                                                 HasSubstr("not permitted"))));
}

// bind() binds sockets of link-local groups to an interface, which the kernel lets only root
// change.
TEST_F(RoceMulticastInterface, Ipv6GroupsOfEachScopeNeedNoPrivilege) {
  const std::vector all{ipv6(0xff12, 9), ipv6(0xff15, 9), ipv6(0xff1e, 9)};
  std::thread([&] {
    __user_cap_header_struct head{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
    const __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {};
    ASSERT_EQ(::syscall(SYS_capset, &head, none), 0);
    set_groups_on_va(all);
  }).join();
  EXPECT_EQ(members(), all.size());
  EXPECT_THAT(lines_, IsEmpty());
}

}  // namespace
}  // namespace softhca::hub
