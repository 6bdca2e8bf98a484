// A network namespace of a test suite's own, where it may make interfaces. Needs root, or a kernel
// that lets users have namespaces.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>

#include "os/network_interface.h"
#include "os/unique_fd.h"

namespace softhca::os {

/// The calling thread, and programs that it starts, are in the namespace while this exists. A user
/// who is not root stays in it until the process ends.
class OwnNetwork {
 public:
  OwnNetwork() : before_(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC)) {
    const bool is_root = ::geteuid() == 0;
    const auto user = std::to_string(::getuid());
    made_ = ::unshare(CLONE_NEWNET | (is_root ? 0 : CLONE_NEWUSER)) == 0;
    if (!made_) return;
    if (!is_root) std::ofstream("/proc/self/uid_map") << "0 " << user << " 1";
    // The kernel itself then sends nothing through a new interface.
    std::ofstream("/proc/sys/net/ipv6/conf/default/disable_ipv6") << 1;
    run("ip link set lo up");
  }
  ~OwnNetwork() {
    if (made_) (void)::setns(before_.get(), CLONE_NEWNET);
  }
  OwnNetwork(const OwnNetwork&) = delete;
  OwnNetwork& operator=(const OwnNetwork&) = delete;

  bool made() const { return made_; }
  /// Runs a command, which must succeed.
  static void run(const std::string& command) {
    EXPECT_EQ(std::system(command.c_str()), 0) << command;  // NOLINT(concurrency-mt-unsafe)
  }

 private:
  const UniqueFd before_;
  bool made_ = false;
};

/// Base of test fixtures whose suite has a network of its own.
class OwnNetworkTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { network_.emplace(); }
  static void TearDownTestSuite() { network_.reset(); }
  void SetUp() override {
    if (!network_->made()) GTEST_SKIP() << "no namespaces for users here";
  }
  static void run(const std::string& command) { OwnNetwork::run(command); }
  /// A pair of connected interfaces, va and vb, which carry frames now.
  static void add_pair() {
    run("ip link add va type veth peer name vb && ip link set va up && ip link set vb up");
    for (const auto* name : {"va", "vb"}) {
      auto interface = *NetworkInterface::follow(::if_nametoindex(name));
      pollfd wait{interface.fd(), POLLIN, 0};
      while (!interface.state().carrier && ::poll(&wait, 1, 10'000) == 1) (void)interface.update();
      EXPECT_TRUE(interface.state().carrier) << name;
    }
  }
  static void remove_pair() {
    if (::if_nametoindex("va") != 0) run("ip link delete va");
  }
  /// For tests with a TAP device: false if this user may not have one here.
  static bool may_tap() { return ::access("/dev/net/tun", R_OK | W_OK) == 0; }

 private:
  static inline std::optional<OwnNetwork> network_;
};

}  // namespace softhca::os
