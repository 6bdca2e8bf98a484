#include "os/kept_descriptors.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>

namespace softhca::os {
namespace {

/// Descriptors from this number on are not recorded.
constexpr int kMax = 65536;
constinit std::array<std::atomic<bool>, kMax> kept{};
/// The highest descriptor ever recorded.
constinit std::atomic<int> highest = -1;

/// Lower numbers are the program's, which may have closed them.
constexpr int kAboveStandard = STDERR_FILENO + 1;

/// -1 if no high number is free.
int copy_to_high_number(int fd) {
  constexpr rlim_t kFirst = 1024;  // FD_SETSIZE
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return -1;
  const auto first = static_cast<int>(std::min(kFirst, limit.rlim_cur / 2));
  return ::fcntl(fd, F_DUPFD_CLOEXEC, std::max(first, kAboveStandard));
}

void note(int fd) {
  if (fd >= kMax) return;
  kept[static_cast<unsigned>(fd)].store(true, std::memory_order_relaxed);
  for (int before = highest.load(); before < fd && !highest.compare_exchange_weak(before, fd);) {
  }
}

}  // namespace

int keep_copy(int fd) {
  int copy = copy_to_high_number(fd);
  if (copy < 0) copy = ::fcntl(fd, F_DUPFD_CLOEXEC, kAboveStandard);
  if (copy >= 0) note(copy);
  return copy;
}

bool is_kept(int fd) {
  return fd >= 0 && fd < kMax && kept[static_cast<unsigned>(fd)].load(std::memory_order_relaxed);
}

int next_kept(int fd) {
  if (fd < 0) return -1;
  for (const int last = highest.load(std::memory_order_relaxed); fd <= last; ++fd) {
    if (is_kept(fd)) return fd;
  }
  return -1;
}

void forget_kept(int fd) {
  if (is_kept(fd)) kept[static_cast<unsigned>(fd)].store(false, std::memory_order_relaxed);
}

void close_all_kept() {
  for (int fd = next_kept(0); fd >= 0; fd = next_kept(fd + 1)) {
    forget_kept(fd);
    ::close(fd);
  }
}

}  // namespace softhca::os
