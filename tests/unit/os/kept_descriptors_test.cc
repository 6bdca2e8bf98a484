#include "os/kept_descriptors.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <vector>

namespace softhca::os {
namespace {

int make() {
  const int low = ::eventfd(0, EFD_CLOEXEC);
  const int fd = keep_copy(low);
  ::close(low);
  return fd;
}

void drop(int fd) {
  forget_kept(fd);
  ::close(fd);
}

TEST(KeptDescriptors, HaveHighNumbers) {
  const int fd = make();
  EXPECT_GE(fd, 256);
  EXPECT_EQ(::fcntl(fd, F_GETFD), FD_CLOEXEC);
  drop(fd);
}

TEST(KeptDescriptors, AreKnownUntilTheyAreForgotten) {
  const int one = make(), other = make();
  EXPECT_TRUE(is_kept(one) && is_kept(other));
  EXPECT_FALSE(is_kept(STDERR_FILENO) || is_kept(-1) || is_kept(1 << 20));
  drop(one);
  EXPECT_FALSE(is_kept(one));
  EXPECT_EQ(next_kept(0), other);
  EXPECT_EQ(next_kept(other), other);
  EXPECT_EQ(next_kept(other + 1), -1);
  drop(other);
}

TEST(KeptDescriptors, AChildClosesThemAll) {
  const int one = make(), other = make();
  close_all_kept();
  EXPECT_EQ(next_kept(0), -1);
  EXPECT_EQ(::fcntl(one, F_GETFD), -1);
  EXPECT_EQ(::fcntl(other, F_GETFD), -1);
}

TEST(KeptDescriptors, WithoutRoomForHighNumbersTheyHaveLowOnes) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const int low = ::eventfd(0, EFD_CLOEXEC);
  // Take every descriptor from half of the limit upwards.
  const rlim_t most = 2 * (static_cast<rlim_t>(low) + 2);
  const rlimit few{most, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  std::vector<int> high;
  for (int fd; (fd = ::fcntl(low, F_DUPFD_CLOEXEC, static_cast<int>(most / 2))) >= 0;) {
    high.push_back(fd);
  }
  const int fd = keep_copy(low);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_TRUE(is_kept(fd));
  EXPECT_LT(fd, static_cast<int>(most / 2));
  for (const int one : high) ::close(one);
  drop(fd);
  ::close(low);
  EXPECT_EQ(keep_copy(-1), -1);
}

// The program would read from it, or print into it.
TEST(KeptDescriptors, NoneHasTheNumberOfAStandardOneThatIsClosed) {
  const auto child = ::fork();
  if (child == 0) {
    const int low = ::eventfd(0, EFD_CLOEXEC);
    ::close(STDIN_FILENO);
    const rlim_t most = 2 * (static_cast<rlim_t>(low) + 2);
    const rlimit few{most, most};
    if (::setrlimit(RLIMIT_NOFILE, &few) != 0) ::_exit(77);
    while (::fcntl(low, F_DUPFD_CLOEXEC, static_cast<int>(most / 2)) >= 0) {
    }
    ::_exit(keep_copy(low) > STDERR_FILENO ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace softhca::os
