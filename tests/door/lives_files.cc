// Descriptors of the door, and calls that have nothing to do with RDMA.
#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <linux/magic.h>
#include <poll.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
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
  tell("write", ::write(fd, bytes, sizeof bytes));
  tell("lseek", ::lseek(fd, 0, SEEK_END));
  tell("truncation", ::ftruncate(fd, 0));
  tell("sync", ::fsync(fd));
  int waiting = 0;
  tell("FIONREAD", ::ioctl(fd, FIONREAD, &waiting));
  ::fcntl(context->async_fd, F_SETFL, ::fcntl(context->async_fd, F_GETFL) | O_NONBLOCK);
  tell("a byte of an event", ::read(context->async_fd, bytes, 1));
  return 0;
}

/// As the kernel's own, which root may not write either.
int sysfs_file() {
  constexpr const char* kFile = "/sys/class/infiniband/mlx5_0/fw_ver";
  tell("to read", ::open(kFile, O_RDONLY | O_TRUNC));
  tell("to write", ::open(kFile, O_WRONLY));
  tell("stream to write", std::fopen(kFile, "w") != nullptr ? 0 : -1);
  struct stat status{};
  expect(::stat(kFile, &status) == 0, "stat");
  std::printf("size: %ld\n", static_cast<long>(status.st_size));
  const int type = ::open("/sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/200", O_RDONLY);
  tell("GID that is none", type);
  char bytes[16];
  tell("its type", ::read(type, bytes, sizeof bytes));
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

/// Registering much memory takes long; other calls do not wait for it.
int registers() {
  constexpr std::size_t kMuch = std::size_t{256} << 20;
  auto* const context = open_first();
  auto* const pd = ibv_alloc_pd(context);
  void* const much =
      ::mmap(nullptr, kMuch, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  std::atomic<bool> begins = false, done = false;
  std::thread other([&] {
    begins = true;
    expect(ibv_reg_mr(pd, much, kMuch, kAccess) != nullptr, "registration");
    done = true;
  });
  while (!begins) {
  }
  int calls = 0;
  for (ibv_device_attr device{}; !done; ++calls) {
    expect(ibv_query_device(context, &device) == 0, "query");
  }
  other.join();
  std::printf("%s\n", calls > 20 ? "many" : "few");
  return 0;
}

/// A CQ that is armed for any completion, and then for solicited ones: any wakes.
int armed_twice() {
  const Loop loop(true);
  auto* const buffer = memory();
  auto* const key = ibv_reg_mr(loop.pd, buffer, kSize, kAccess);
  ibv_sge piece{reinterpret_cast<std::uintptr_t>(buffer), 8, key->lkey};
  ibv_send_wr work{};
  work.sg_list = &piece;
  work.num_sge = 1;
  work.opcode = IBV_WR_RDMA_WRITE;
  work.send_flags = IBV_SEND_SIGNALED;
  work.wr.rdma = {reinterpret_cast<std::uintptr_t>(buffer) + 8, key->rkey};
  expect(ibv_req_notify_cq(loop.cq, 0) == 0 && ibv_req_notify_cq(loop.cq, 1) == 0, "arm");
  ibv_send_wr* bad;
  expect(ibv_post_send(loop.qp, &work, &bad) == 0, "post");
  pollfd at{.fd = loop.channel->fd, .events = POLLIN, .revents = 0};
  std::printf("%s\n", ::poll(&at, 1, 10'000) == 1 ? "woken" : "asleep");
  return 0;
}

int tell_path(const char* path, const struct stat*, int, struct FTW* place) {
  if (place->level == 0) std::puts(path + place->base);
  return std::strncmp(path, "/sys/", 5) == 0 ? 0 : 1;
}

/// Functions of libc that walk over files by themselves.
int walks() {
  glob_t found{};
  expect(::glob("/sys/class/infiniband/*", 0, nullptr, &found) == 0, "glob");
  for (std::size_t i = 0; i != found.gl_pathc; ++i) std::puts(found.gl_pathv[i]);
  ::globfree(&found);
  const int walked =
      ::nftw("/sys/class/infiniband/mlx5_0/ports/1/gid_attrs", tell_path, 8, FTW_PHYS);
  std::printf("%d\n", walked);
  struct statfs status{};
  expect(::statfs("/sys/class/infiniband", &status) == 0, "statfs");
  std::printf("%s\n", status.f_type == SYSFS_MAGIC ? "sysfs" : "none");
  return 0;
}

/// The run ends, and a process that it has started goes on.
int outlives() {
  if (::fork() != 0) return 0;
  const int events = ::inotify_init1(IN_CLOEXEC);
  expect(events >= 0, "inotify");
  // It fails where the run has ended.
  if (::inotify_add_watch(events, std::getenv("SOFTHCA_DOOR"), IN_DELETE_SELF) >= 0) {
    inotify_event event;
    expect(::read(events, &event, sizeof event) > 0, "the end of the run");
  }
  int count = 0;
  (void)ibv_get_device_list(&count);
  std::printf("%d devices\n", count);
  return 0;
}

constexpr Case kCases[] = {{"walks", walks},
                           {"outlives", outlives},
                           {"closed", closed},
                           {"armed-twice", armed_twice},
                           {"device-file", device_file},
                           {"sysfs-file", sysfs_file},
                           {"small-files", small_files},
                           {"no-threads", no_threads},
                           {"asks", asks},
                           {"registers", registers}};

}  // namespace

std::span<const Case> files() { return kCases; }

}  // namespace lives
