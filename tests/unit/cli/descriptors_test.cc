// Descriptors of processes that outlive the command that started them.
#include "cli/run/descriptors.h"

#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

namespace softhca::cli {
namespace {

bool is_open(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }

/// Makes close_range fail with ENOSYS, as Linux before 5.9 and seccomp filters of old containers
/// do.
bool forbid_close_range() {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_close_range, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{.len = 4, .filter = filter};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/// Runs in a child. 0, or which descriptors are wrong.
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

}  // namespace
}  // namespace softhca::cli
