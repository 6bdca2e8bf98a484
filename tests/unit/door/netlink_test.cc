// The stand-in for NETLINK_RDMA sockets, which other processes can send to.
#include "door/interpose/netlink.h"

#include <gtest/gtest.h>
#include <linux/netlink.h>
#include <rdma/rdma_netlink.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "os/unique_fd.h"

namespace softhca::door {
namespace {

class RdmaNetlink : public ::testing::Test {
 protected:
  static constexpr std::uint32_t kSequence = 77;
  RdmaNetlink()
      : program_(open_rdma_netlink(SOCK_RAW)),
        stranger_(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_USERSOCK)) {
    own_.nl_family = AF_NETLINK;
    auto* const address = reinterpret_cast<sockaddr*>(&own_);
    socklen_t size = sizeof own_;
    EXPECT_EQ(::bind(program_.get(), address, size), 0);
    EXPECT_EQ(::getsockname(program_.get(), address, &size), 0);
  }
  /// Asks for the devices, as libibverbs does. There are none.
  int ask() const { return ask(program_.get()); }
  static int ask(int fd) {
    const nlmsghdr request{
        .nlmsg_len = sizeof request,
        .nlmsg_type = RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_GET),
        .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP,
        .nlmsg_seq = kSequence,
        .nlmsg_pid = 0,
    };
    return serve_rdma_netlink(fd, &request, sizeof request, nullptr, 0, PathMap());
  }
  /// 0, or an errno.
  int forge() const {
    const nlmsghdr forged{.nlmsg_len = sizeof forged,
                          .nlmsg_type = NLMSG_ERROR,
                          .nlmsg_flags = 0,
                          .nlmsg_seq = kSequence,
                          .nlmsg_pid = own_.nl_pid};
    const auto sent = ::sendto(stranger_.get(), &forged, sizeof forged, MSG_DONTWAIT,
                               reinterpret_cast<const sockaddr*>(&own_), sizeof own_);
    return sent < 0 ? errno : 0;
  }
  /// The types of the messages that wait.
  std::vector<unsigned> read_all() const {
    std::vector<unsigned> types;
    alignas(nlmsghdr) char bytes[4096];
    while (::recv(program_.get(), bytes, sizeof bytes, MSG_DONTWAIT) > 0) {
      types.push_back(reinterpret_cast<const nlmsghdr*>(bytes)->nlmsg_type);
    }
    return types;
  }
  const os::UniqueFd program_, stranger_;
  sockaddr_nl own_{};
};

TEST_F(RdmaNetlink, ForgedAnswersAreRefused) {
  ASSERT_EQ(forge(), 0) << "the program has not asked yet";
  EXPECT_EQ(ask(), 1);
  EXPECT_EQ(forge(), ECONNREFUSED);
  EXPECT_EQ(read_all(), std::vector<unsigned>{NLMSG_DONE});
  EXPECT_EQ(forge(), ECONNREFUSED) << "also between two requests";
}

TEST_F(RdmaNetlink, AnswersWaitUntilTheyAreRead) {
  EXPECT_EQ(ask(), 1);
  EXPECT_EQ(ask(), 1);
  EXPECT_EQ(read_all(), (std::vector<unsigned>{NLMSG_DONE, NLMSG_DONE}));
}

TEST_F(RdmaNetlink, InAnotherNamespaceItIsRefused) {
  constexpr int kMayNot = 77;
  const auto child = ::fork();
  if (child == 0) {
    const int before = ask();
    if (::unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) ::_exit(kMayNot);
    const int after = ask(open_rdma_netlink(SOCK_RAW));
    ::_exit(before == 1 && after == -ECONNREFUSED ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == kMayNot) GTEST_SKIP() << "no namespaces for users here";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace softhca::door
