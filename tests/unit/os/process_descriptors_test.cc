// Descriptors of processes that outlive the command that started them.
#include "os/process_descriptors.h"

#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

#include "os/forbidden_call.h"

namespace softhca::os {
namespace {

bool is_open(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }

/// As Linux before 5.9, and the filters of old containers.
bool forbid_close_range() { return test::forbid_call(SYS_close_range, ENOSYS); }

/// Runs in a child. Returns 0, or a status that names the wrong descriptors.
int close_in_child(bool has_close_range) {
  const auto child = ::fork();
  if (child == 0) {
    if (!has_close_range && !forbid_close_range()) ::_exit(77);
    std::array<int, 6> all;
    for (auto& fd : all) fd = ::eventfd(0, 0);
    close_all_but({all[4], all[1]});
    int wrong = is_open(STDERR_FILENO) ? 0 : 64;
    for (unsigned i = 0; i != all.size(); ++i) {
      if (is_open(all[i]) != (i == 1 || i == 4)) wrong |= 1 << i;
    }
    ::_exit(wrong);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(Descriptors, AllButThoseThatAreNamedAreClosed) { EXPECT_EQ(close_in_child(true), 0); }

TEST(Descriptors, TheyAreClosedOneByOneWhereTheKernelHasNoOtherWay) {
  EXPECT_EQ(close_in_child(false), 0);
}

TEST(Descriptors, StandardOnesThatAreClosedAreTakenUntilAProgramStarts) {
  const auto child = ::fork();
  if (child == 0) {
    for (const int fd : {STDIN_FILENO, STDERR_FILENO}) ::close(fd);
    const int output = ::fcntl(STDOUT_FILENO, F_GETFD);
    fill_standard_descriptors();
    const bool filled = ::fcntl(STDIN_FILENO, F_GETFD) == FD_CLOEXEC &&
                        ::fcntl(STDERR_FILENO, F_GETFD) == FD_CLOEXEC;
    ::_exit(filled && ::fcntl(STDOUT_FILENO, F_GETFD) == output ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace
}  // namespace softhca::os
