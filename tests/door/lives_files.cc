// Descriptors of the door, and calls that have nothing to do with RDMA.
#include <dirent.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "lives.h"

namespace lives {
namespace {

ibv_context* open_first() {
  auto** const list = ibv_get_device_list(nullptr);
  expect(list != nullptr && list[0] != nullptr, "no device");
  return ibv_open_device(list[0]);
}

int count_descriptors() {
  DIR* const folder = ::opendir("/proc/self/fd");
  int count = 0;
  while (::readdir(folder) != nullptr) ++count;
  ::closedir(folder);
  return count;
}

/// What is closed is closed.
int closed() {
  expect(open_first() != nullptr, "open");
  const int before = count_descriptors();
  for (int i = 0; i != 20; ++i) {
    auto* const context = open_first();
    expect(context != nullptr, "open");
    ibv_close_device(context);
  }
  std::printf("%d more\n", count_descriptors() - before);
  if (std::getenv("LIVES_LIST")) (void)!std::system("ls -l /proc/$PPID/fd");
  return 0;
}

void tell(const char* what, long result) {
  std::printf("%s: %s\n", what, result >= 0 ? "ok" : std::strerror(errno));
}

/// As a character device.
int device_file() {
  auto* const context = open_first();
  const int fd = context->cmd_fd;
  char bytes[64] = {};
  tell("read", ::read(fd, bytes, sizeof bytes));
  tell("pread", ::pread(fd, bytes, sizeof bytes, 0));
  tell("write", ::write(fd, bytes, sizeof bytes));
  tell("lseek", ::lseek(fd, 0, SEEK_END));
  tell("ftruncate", ::ftruncate(fd, 0));
  int waiting = 0;
  tell("FIONREAD", ::ioctl(fd, FIONREAD, &waiting));
  tell("mmap",
       reinterpret_cast<std::intptr_t>(::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, fd, 0)) == -1
           ? -1
           : 0);
  tell("a byte of an event", ::read(context->async_fd, bytes, 1));
  return 0;
}

/// A limit on the size of files.
int small_files() {
  const rlimit limit{1000 << 10, 1000 << 10};
  expect(::setrlimit(RLIMIT_FSIZE, &limit) == 0, "setrlimit");
  std::printf("%s\n", open_first() != nullptr ? "opened" : "not opened");
  return 0;
}

/// A limit on threads.
int no_threads() {
  const rlimit limit{0, 0};
  expect(::setrlimit(RLIMIT_NPROC, &limit) == 0, "setrlimit");
  std::printf("%s\n", open_first() != nullptr ? "opened" : "not opened");
  return 0;
}

/// An address that nobody has is asked for a second; other calls do not wait for it.
int asks() {
  auto* const context = open_first();
  auto* const pd = ibv_alloc_pd(context);
  std::atomic<bool> done = false;
  std::thread asker([&] {
    ibv_ah_attr attributes{};
    attributes.is_global = 1;
    attributes.port_num = 1;
    attributes.grh.sgid_index = kGidIndex;
    attributes.grh.dgid.raw[10] = attributes.grh.dgid.raw[11] = 0xff;
    const std::uint8_t nobody[] = {10, 99, 99, 99};
    std::memcpy(&attributes.grh.dgid.raw[12], nobody, 4);
    if (ibv_create_ah(pd, &attributes) != nullptr) std::puts("found");
    done = true;
  });
  const int file = ::memfd_create("file", MFD_CLOEXEC);
  int stats = 0, verbs = 0;
  while (!done) {
    struct stat status{};
    expect(::fstat(file, &status) == 0, "fstat");
    ++stats;
    ibv_device_attr device{};
    expect(ibv_query_device(context, &device) == 0, "query");
    ++verbs;
  }
  asker.join();
  std::printf("%s %s\n", stats > 100 ? "many" : "few", verbs > 100 ? "many" : "few");
  return 0;
}

constexpr Case kCases[] = {{"closed", closed},
                           {"device-file", device_file},
                           {"small-files", small_files},
                           {"no-threads", no_threads},
                           {"asks", asks}};

}  // namespace

std::span<const Case> files() { return kCases; }

}  // namespace lives
