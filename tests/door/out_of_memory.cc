// Opens a device while the n-th allocation fails, for each n. Each failure is ENOMEM. It leaves no
// descriptor open, and no device file without a context, which the next call would find.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>

namespace {

/// Number of the allocation of this thread that fails; 0: none fails.
thread_local unsigned fails_after = 0;

int open_device() { return ::open("/dev/infiniband/uverbs0", O_RDWR | O_CLOEXEC); }

void expect(bool good, const char* what, unsigned nth) {
  if (good) return;
  std::fprintf(stderr, "allocation %u: %s (errno %d)\n", nth, what, errno);
  std::exit(1);
}

}  // namespace

extern "C" void* __libc_malloc(std::size_t size);  // NOLINT: glibc's name
extern "C" void* malloc(std::size_t size) {
  if (fails_after == 0 || --fails_after != 0) return __libc_malloc(size);
  errno = ENOMEM;
  return nullptr;
}

int main() {
  const int first = open_device();
  expect(first >= 0, "a device that opens", 0);
  ::close(first);
  for (unsigned nth = 1;; ++nth) {
    fails_after = nth;
    const int fd = open_device();
    const int wrong = errno;
    const bool failed = fails_after == 0;
    fails_after = 0;
    if (fd >= 0) ::close(fd);
    errno = wrong;
    expect(fd >= 0 || (failed && wrong == ENOMEM), "ENOMEM or a device", nth);
    const int next = open_device();
    expect(next == first, "the next open() succeeds, and no descriptor is left", nth);
    ::close(next);
    if (!failed) break;
    if (nth == 1) std::puts("open() allocates");
  }
  std::puts("all allocations");
  return 0;
}
