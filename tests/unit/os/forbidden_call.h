// A filter of system calls, as containers have them.
#pragma once

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cstddef>

namespace softhca::test {

/// From now on system call `number` fails with `error` in this thread, and in threads and processes
/// that it starts. False: the kernel has no such filter.
inline bool forbid_call(unsigned number, unsigned error) {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{.len = 4, .filter = filter};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/// The same for one option of setsockopt().
inline bool forbid_socket_option(unsigned level, unsigned option, unsigned error) {
  constexpr auto kArgument = [](unsigned i) { return offsetof(seccomp_data, args) + 8 * i; };
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_setsockopt, 0, 5),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kArgument(1)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, level, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kArgument(2)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, option, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{.len = 8, .filter = filter};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

}  // namespace softhca::test
