#include "os/process_descriptors.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <string>
#include <system_error>

namespace softhca::os {
namespace {

/// False: the system call is missing (before Linux 5.9, or an old container's filter).
bool close_between(int first, unsigned last) {
  return static_cast<unsigned>(first) > last ||
         ::close_range(static_cast<unsigned>(first), last, 0) == 0;
}

void close_one_by_one(const std::vector<int>& kept) {
  std::vector<int> all;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", ignored)) {
    const auto name = entry.path().filename().string();
    int fd = -1;
    std::from_chars(name.data(), name.data() + name.size(), fd);
    if (fd > STDERR_FILENO && !std::ranges::binary_search(kept, fd)) all.push_back(fd);
  }
  for (const int fd : all) ::close(fd);
}

}  // namespace

void close_all_but(std::vector<int> kept) {
  std::ranges::sort(kept);
  int from = STDERR_FILENO + 1;
  bool good = true;
  for (const int fd : kept) {
    if (fd < from) continue;
    good = good && close_between(from, static_cast<unsigned>(fd) - 1);
    from = fd + 1;
  }
  if (!good || !close_between(from, ~0u)) close_one_by_one(kept);
}

void fill_standard_descriptors() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    // Lower numbers are taken: open() returns this one.
    if (::fcntl(fd, F_GETFD) < 0) (void)!::open("/dev/null", O_RDWR | O_CLOEXEC);
  }
}

}  // namespace softhca::os
