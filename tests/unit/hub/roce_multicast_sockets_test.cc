// The sockets of a process's multicast groups: which are opened, when, and what is logged of the
// others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <net/if.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

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

#include "fabric/switch.h"
#include "hub/group_address.h"
#include "hub/roce_link.h"
#include "hub/roce_multicast.h"
#include "os/forbidden_call.h"
#include "os/own_network.h"
#include "util/endian.h"
#include "util/log.h"

namespace softhca::hub {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

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
  const std::vector all{group_, ipv6_address(0xff1e, 9)};
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
  const std::vector all{ipv6_address(0xff12, 9), ipv6_address(0xff15, 9), ipv6_address(0xff1e, 9)};
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
