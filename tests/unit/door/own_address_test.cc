// Files in which the processes of a run publish their addresses and port numbers.
#include "door/card/own_address.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <bitset>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "door/card/addresses.h"
#include "door/engine/port_file.h"
#include "door/tree/tree.h"
#include "hub/far_members.h"
#include "os/own_network.h"
#include "util/log.h"

namespace softhca::door {
namespace {

class OwnAddress : public testing::Test {
 protected:
  OwnAddress() {
    std::string made = testing::TempDir() + "softhca-XXXXXX";
    directory_ = ::mkdtemp(made.data());
  }
  ~OwnAddress() override { std::filesystem::remove_all(directory_); }

  /// Two threads take `starts` addresses each, one after the other. Returns how many of these were
  /// seen as gone while they were held. `patience`: of OwnAddresses::take().
  template <class... Patience>
  unsigned live_seen_as_gone(unsigned starts, Patience... patience) {
    const auto start = [&](unsigned first) {
      unsigned gone = 0;
      for (unsigned number = first; number != first + starts; ++number) {
        const auto own = OwnAddresses::take(directory_, number, "", patience...);
        gone += is_gone(directory_, own.all().front()) ? 1 : 0;
      }
      return gone;
    };
    unsigned others = 0;
    std::thread other([&] { others = start(20'000); });
    const auto here = start(1);
    other.join();
    return here + others;
  }
  /// Takes the turn of another process, which lasts until the descriptor is closed.
  os::UniqueFd hold_turn() {
    const auto path = directory_ + "/addresses.lock";
    os::UniqueFd other(::open(path.c_str(), O_RDWR | O_CREAT, 0600));
    EXPECT_EQ(::flock(other.get(), LOCK_EX), 0);
    return other;
  }

  std::string directory_;
};

// Each starting process removes the files of ended processes.
TEST_F(OwnAddress, AProcessOfAnotherMachineIsNotGone) {
  const auto gid = ipv4_gid_of(9 * 256 + 5);
  EXPECT_TRUE(is_gone(directory_, gid));
  auto far = hub::FarMembers::create(directory_).value();
  EXPECT_TRUE(is_gone(directory_, gid));
  far.set(9, std::bitset<256>().set(5));
  EXPECT_FALSE(is_gone(directory_, gid));
  EXPECT_TRUE(is_gone(directory_, ipv4_gid_of(9 * 256 + 6)));
  far.set(9, {});
  EXPECT_TRUE(is_gone(directory_, gid));
}

// A process of this machine that had the address leaves its file.
TEST_F(OwnAddress, AnAddressThatMovesToAnotherMachineIsNotGone) {
  const auto given = driver::Gid::from_ipv4(198, 19, 7, 2);
  const auto usual = ipv4_gid_of(9 * 256 + 5);
  for (const auto* const name : {"address-198.19.7.2", "address-198.18.9.5"}) {
    ::close(::open((directory_ + "/" + name).c_str(), O_CREAT | O_WRONLY, 0600));
  }
  EXPECT_TRUE(is_gone(directory_, given)) << "no other machine can have it";
  EXPECT_TRUE(is_gone(directory_, usual));
  auto far = hub::FarMembers::create(directory_).value();
  EXPECT_FALSE(is_gone(directory_, given)) << "it may be on any machine";
  EXPECT_TRUE(is_gone(directory_, usual));
  far.set(9, std::bitset<256>().set(5));
  EXPECT_FALSE(is_gone(directory_, usual));
}

TEST_F(OwnAddress, GuidsOfAJoinedNetworkHaveARandomPart) {
  EXPECT_EQ(read_guid_salt(directory_), 0);
  ASSERT_TRUE(write_guid_salt(directory_, 0xabcd));
  EXPECT_EQ(read_guid_salt(directory_), 0xabcd);
  EXPECT_EQ(node_guid_of(3, read_guid_salt(directory_)), 0x020000fffeabcd03u);
  EXPECT_EQ(node_guid_of(3), 0x020000fffe000003u);
}

TEST_F(OwnAddress, AProcessThatStartsAmongOthersIsNeverSeenAsGone) {
  EXPECT_EQ(live_seen_as_gone(150), 0u);
}

// Each process also checks repeatedly whether its peers have ended.
TEST_F(OwnAddress, AnAddressIsTakenWhileOthersLookAtIt) {
  const auto given = driver::Gid::from_ipv4(198, 19, 7, 7);
  std::atomic<bool> done = false;
  std::thread looks([&] {
    while (!done) (void)is_gone(directory_, given);
  });
  unsigned refused = 0;
  for (unsigned i = 0; i != 200; ++i) {
    refused += OwnAddresses::take(directory_, 1, "198.19.7.7").all().front() == given ? 0 : 1;
  }
  done = true;
  looks.join();
  EXPECT_EQ(refused, 0u);
}

// Another process may hold the lock for a moment while it checks the file. That does not make it
// the owner.
TEST_F(OwnAddress, AProcessThatLooksHoldsNothing) {
  for (const auto* const name : {"address-198.18.0.1", "address-198.19.7.7"}) {
    const auto path = directory_ + "/" + name;
    const os::UniqueFd looks(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    ASSERT_EQ(::flock(looks.get(), LOCK_EX), 0);
    const auto own = OwnAddresses::take(directory_, 1, "198.19.7.7");
    EXPECT_EQ(own.all().front(), driver::Gid::from_ipv4(198, 19, 7, 7));
    const auto usual = OwnAddresses::take(directory_, 1, "");
    EXPECT_FALSE(is_gone(directory_, usual.all().front()));
  }
}

TEST_F(OwnAddress, AProcessThatStartsLeavesTheFilesOfLiveOnes) {
  const auto first = OwnAddresses::take(directory_, 1, "");
  {
    const auto second = OwnAddresses::take(directory_, 2, "");
    EXPECT_FALSE(is_gone(directory_, first.all().front()));
    EXPECT_FALSE(is_gone(directory_, second.all().front()));
  }
  const auto third = OwnAddresses::take(directory_, 3, "");
  EXPECT_TRUE(is_gone(directory_, ipv4_gid_of(2)));
  EXPECT_FALSE(std::filesystem::exists(directory_ + "/address-198.18.0.2"));
}

TEST_F(OwnAddress, AnAddressIsThatOfTheFirstUntilItHasGone) {
  const auto given = driver::Gid::from_ipv4(198, 19, 7, 7);
  {
    const auto first = OwnAddresses::take(directory_, 1, "198.19.7.7");
    EXPECT_EQ(first.all().front(), given);
    EXPECT_EQ(OwnAddresses::take(directory_, 2, "198.19.7.7").all().front(), ipv4_gid_of(2));
    EXPECT_FALSE(is_gone(directory_, given));
  }
  EXPECT_TRUE(is_gone(directory_, given));
  EXPECT_TRUE(is_gone(directory_, ipv4_gid_of(2)));
  EXPECT_EQ(OwnAddresses::take(directory_, 3, "198.19.7.7").all().front(), given);
}

/// A network with an interface "shared0", which has 192.0.2.1 and 192.0.2.2.
class SharedAddress : public OwnAddress {
 protected:
  SharedAddress() {
    if (!network_.made()) return;
    os::OwnNetwork::run(
        "ip link add shared0 type veth peer name shared1 && ip addr add 192.0.2.1/24 dev shared0 "
        "&& "
        "ip addr add 192.0.2.2/24 dev shared0 && ip link set shared0 up");
  }
  void SetUp() override {
    if (!network_.made()) GTEST_SKIP() << "no namespaces for users here";
  }
  OwnAddresses take_shared(unsigned number) const {
    return OwnAddresses::take(directory_, number, "if:shared0");
  }

  static inline const driver::Gid kFirst = driver::Gid::from_ipv4(192, 0, 2, 1);
  static inline const driver::Gid kSecond = driver::Gid::from_ipv4(192, 0, 2, 2);
  os::OwnNetwork network_;
};

TEST_F(SharedAddress, ProcessesShareTheAddressesOfAnInterface) {
  std::optional<OwnAddresses> first = take_shared(1), second = take_shared(2);
  const std::vector both{kFirst, kSecond};
  EXPECT_EQ(first->all(), both);
  EXPECT_EQ(second->all(), both);
  EXPECT_TRUE(second->follows_host());
  first.reset();
  EXPECT_FALSE(is_gone(directory_, kFirst)) << "the second has it";
  EXPECT_TRUE(is_of_run(directory_, kFirst));
  const auto third = take_shared(3);
  second.reset();
  EXPECT_FALSE(is_gone(directory_, kFirst)) << "the third has it";
  EXPECT_EQ(third.all(), both);
}

TEST_F(SharedAddress, TheAddressIsGoneWithItsLastProcess) {
  std::optional<OwnAddresses> first = take_shared(1), second = take_shared(2);
  first.reset();
  second.reset();
  EXPECT_TRUE(is_gone(directory_, kFirst));
  EXPECT_EQ(take_shared(3).all().front(), kFirst);
}

TEST_F(SharedAddress, AnAddressThatAProcessHasAloneIsNotShared) {
  const auto alone = OwnAddresses::take(directory_, 1, "192.0.2.1");
  ASSERT_EQ(alone.all().front(), kFirst);
  EXPECT_EQ(take_shared(2).all(), std::vector{kSecond});
}

TEST_F(SharedAddress, ASharedAddressIsNotTakenAlone) {
  const auto shared = take_shared(1);
  EXPECT_EQ(OwnAddresses::take(directory_, 2, "192.0.2.1").all(), std::vector{ipv4_gid_of(2)});
  EXPECT_FALSE(is_gone(directory_, kFirst));
}

TEST_F(SharedAddress, AddressesThatComeAndGoAreFollowedByEach) {
  auto first = take_shared(1), second = take_shared(2);
  os::OwnNetwork::run("ip addr del 192.0.2.1/24 dev shared0");
  EXPECT_TRUE(first.refresh());
  EXPECT_FALSE(is_gone(directory_, kFirst)) << "the second still has it";
  EXPECT_TRUE(second.refresh());
  EXPECT_TRUE(is_gone(directory_, kFirst));
}

TEST_F(OwnAddress, AnAddressIsOfTheRunWhileAProcessHasIt) {
  const auto given = driver::Gid::from_ipv4(198, 19, 7, 7);
  EXPECT_FALSE(is_of_run(directory_, given));
  {
    const auto own = OwnAddresses::take(directory_, 1, "198.19.7.7");
    EXPECT_TRUE(is_of_run(directory_, given));
    EXPECT_FALSE(own.follows_host());
  }
  EXPECT_FALSE(is_of_run(directory_, given));
}

/// A child of this process, forked without exec. It lives until this object is destroyed.
class Child {
 public:
  template <class Run>
  explicit Child(Run&& run) {
    int ready[2];
    EXPECT_EQ(::pipe(ready), 0);
    number_ = ::fork();
    if (number_ == 0) {
      run();
      (void)!::write(ready[1], "", 1);
      for (;;) ::pause();
    }
    char byte;
    EXPECT_EQ(::read(ready[0], &byte, 1), 1);
    ::close(ready[0]);
    ::close(ready[1]);
  }
  ~Child() {
    ::kill(number_, SIGKILL);
    ::waitpid(number_, nullptr, 0);
  }

 private:
  pid_t number_;
};

TEST_F(OwnAddress, AForkedChildDoesNotKeepAPortNumber) {
  const auto own = driver::Gid::from_ipv4(198, 18, 0, 1);
  const auto parent = *PortFile::open(directory_), other = *PortFile::open(directory_);
  ASSERT_EQ(parent->claim(RDMA_PS_TCP, 7471, own, false), 0);
  EXPECT_EQ(other->claim(RDMA_PS_TCP, 7471, own, false), EADDRINUSE);
  EXPECT_EQ(other->claim(RDMA_PS_TCP, 7471, own, true), EADDRNOTAVAIL);
  EXPECT_EQ(other->find(RDMA_PS_TCP, 7471), own);
  const Child child([] {});
  parent->release(RDMA_PS_TCP, 7471, false);
  EXPECT_EQ(other->find(RDMA_PS_TCP, 7471), std::nullopt);
  EXPECT_EQ(other->claim(RDMA_PS_TCP, 7471, own, true), 0);
  EXPECT_EQ(parent->claim(RDMA_PS_TCP, 7471, own, false), EADDRNOTAVAIL);
}

TEST_F(OwnAddress, APortNumberEndsWithItsProcessAlthoughItsChildLives) {
  const auto own = driver::Gid::from_ipv4(198, 18, 0, 1);
  auto parent = *PortFile::open(directory_);
  ASSERT_EQ(parent->claim(RDMA_PS_TCP, 7471, own, false), 0);
  const Child child([&] { parent->leave_to_parent(); });
  parent.reset();
  EXPECT_EQ((*PortFile::open(directory_))->claim(RDMA_PS_TCP, 7471, own, false), 0);
}

TEST_F(OwnAddress, EachPortSpaceHasNumbersOfItsOwn) {
  const auto own = driver::Gid::from_ipv4(198, 18, 0, 1);
  const auto one = *PortFile::open(directory_), other = *PortFile::open(directory_);
  for (const auto space : {RDMA_PS_TCP, RDMA_PS_UDP, RDMA_PS_IB, RDMA_PS_IPOIB}) {
    for (const std::uint16_t port : {0, 1, 65535}) {
      EXPECT_EQ(one->claim(static_cast<std::uint16_t>(space), port, own, false), 0)
          << space << " " << port;
      EXPECT_NE(other->claim(static_cast<std::uint16_t>(space), port, own, false), 0);
    }
  }
}

// The sysctl net.ipv4.ip_local_port_range.
TEST_F(OwnAddress, TheRangeOfFreePortNumbersIsRead) {
  using Range = std::pair<std::uint16_t, std::uint16_t>;
  const auto path = directory_ + "/range";
  const auto range_of = [&](const std::string& text) {
    std::ofstream(path) << text;
    const auto range = PortFile::read_range(path.c_str());
    return Range(range.first, range.last);
  };
  const Range usual(32768, 60999);
  EXPECT_EQ(range_of("40000\t50001\n"), Range(40000, 50001));
  EXPECT_EQ(range_of("1 65535"), Range(1, 65535));
  for (const auto* const text : {"", "x", "40000", "40000\t", "50000\t40000\n", "0\t0\n"}) {
    EXPECT_EQ(range_of(text), usual) << text;
  }
  const auto none = PortFile::read_range((directory_ + "/none").c_str());
  EXPECT_EQ(Range(none.first, none.last), usual);
}

// perftest listens in one port space, then at the same number in another. In between, a client that
// resolves an address of the machine must be led to that process.
TEST_F(OwnAddress, AProcessThatReturnsToANumberIsFoundInAnyPortSpace) {
  const auto own = OwnAddresses::take(directory_, 1, "");
  const auto gid = own.all().front();
  const auto one = *PortFile::open(directory_), other = *PortFile::open(directory_);
  ASSERT_EQ(one->claim(RDMA_PS_TCP, 7471, gid, false), 0);
  EXPECT_EQ(other->find(RDMA_PS_UDP, 7471), std::nullopt) << "it is at work in the first";
  one->release(RDMA_PS_TCP, 7471, true);
  EXPECT_EQ(other->find(RDMA_PS_UDP, 7471), gid);
  EXPECT_EQ(other->find(RDMA_PS_TCP, 7471), gid);
  ASSERT_EQ(other->claim(RDMA_PS_TCP, 7471, driver::Gid{}, false), 0) << "no process has it";
}

// After setuid(2), the program may no longer access the directory of the run.
TEST_F(OwnAddress, AProgramWithoutPrivilegesTakesPortNumbers) {
  if (::geteuid() != 0) GTEST_SKIP() << "not root";
  const auto file = *PortFile::open(directory_);
  const auto child = ::fork();
  if (child == 0) {
    if (::setresuid(65534, 65534, 65534) != 0) ::_exit(2);
    ::_exit(file->claim(RDMA_PS_TCP, 7471, driver::Gid{}, false));
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// The process that has the turn may be stopped, or in a debugger.
TEST_F(OwnAddress, AProcessThatStaysInItsTurnStopsNoOther) {
  const auto other = hold_turn();
  const auto left = directory_ + "/address-198.18.9.9";
  ::close(::open(left.c_str(), O_CREAT | O_WRONLY, 0600));
  const auto own = OwnAddresses::take(directory_, 1, "", util::Duration::zero());
  EXPECT_EQ(own.all().front(), ipv4_gid_of(1));
  EXPECT_TRUE(std::filesystem::exists(left)) << "the other may be about to take it";
}

// Two processes that start meanwhile do not take each other's unfinished files.
TEST_F(OwnAddress, ProcessesWithoutATurnLeaveEachOtherAlone) {
  const auto other = hold_turn();
  util::set_log_sink([](auto, auto) {});
  EXPECT_EQ(live_seen_as_gone(1000, util::Duration::zero()), 0u);
  util::set_log_sink(nullptr);
}

// The engine checks a peer with its lock held. Opening a FIFO blocks until a peer opens it.
TEST_F(OwnAddress, AFifoInPlaceOfAnAddressIsNotWaitedFor) {
  const auto path = directory_ + "/address-198.18.0.7";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_TRUE(is_gone(directory_, driver::Gid::from_ipv4(198, 18, 0, 7)));
}

// Other users who can write to the directory of a run could replace a file by a link.
TEST_F(OwnAddress, ALinkIsNoPortFile) {
  const auto victim = directory_ + "/victim";
  ::close(::open(victim.c_str(), O_CREAT | O_WRONLY, 0600));
  ASSERT_EQ(::symlink(victim.c_str(), (directory_ + "/ports").c_str()), 0);
  EXPECT_FALSE(PortFile::open(directory_));
}

}  // namespace
}  // namespace softhca::door
