// A thread is stopped in the middle of a call or a turn. Other threads must not wait for it.
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <linux/limits.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cinttypes>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "lives.h"
#include "lives_library.h"

namespace lives {
namespace {

/// The engine reads all mappings of the process before it sleeps and after it has slept. Calls do
/// not wait for that.
int mappings_are_read() {
  const Loop loop;
  for (const auto* what : {"before", "after"}) {
    if (what[0] == 'b') hold_next(HeldCall::kMaps, 0);
    while (!is_held()) {
    }
    ibv_device_attr attributes{};
    expect(ibv_query_device(loop.context, &attributes) == 0, "query");
    std::puts(what);
    // The call has prevented the sleep, so the engine reads the mappings again.
    if (what[0] == 'b') hold_next(HeldCall::kMaps, 0);
    let_go();
  }
  return 0;
}

/// fork() while another thread makes the first open(): the child opens a device.
int fork_in_first_open() {
  std::atomic<bool> opened = false;
  hold_next(HeldCall::kEventfd, ::gettid());
  std::thread opens([&] {
    expect(::open("/dev/infiniband/uverbs0", O_RDWR | O_CLOEXEC) >= 0, "open");
    opened = true;
  });
  while (!is_held() && !opened) {
  }
  const auto child = ::fork();
  if (child == 0) {
    ::_exit(::open("/dev/infiniband/uverbs0", O_RDWR | O_CLOEXEC) >= 0 ? 0 : 1);
  }
  let_go();
  int status = 0;
  expect(::waitpid(child, &status, 0) == child, "waitpid");
  opens.join();
  std::puts(status == 0 ? "opened" : "not opened");
  return 0;
}

/// The same if the first open() takes longer than fork() waits for it.
int fork_in_slow_open() {
  hold_next(HeldCall::kEventfd, 0);
  std::thread opens(
      [] { expect(::open("/dev/infiniband/uverbs0", O_RDWR | O_CLOEXEC) >= 0, "open"); });
  while (!is_held()) {
  }
  const auto child = ::fork();
  if (child == 0) {
    ::_exit(::open("/dev/infiniband/uverbs0", O_RDWR | O_CLOEXEC) >= 0 ? 0 : 1);
  }
  int status = 0;
  expect(::waitpid(child, &status, 0) == child, "waitpid");
  let_go();
  opens.join();
  std::puts(status == 0 ? "opened" : "not opened");
  return 0;
}

/// A signal handler that runs in the middle of a call of the door, which has locks.
void look_for_devices(int) {
  constexpr const char* kDevice = "/sys/class/infiniband/mlx5_0";
  constexpr const char* kGuid = "/sys/class/infiniband/mlx5_0/node_guid";
  struct stat status{};
  static char text[PATH_MAX];
  tell("file", ::open(kGuid, O_RDONLY | O_CLOEXEC));
  tell("GID", ::open("/sys/class/infiniband/mlx5_0/ports/1/gids/0", O_RDONLY | O_CLOEXEC));
  tell("stat", ::stat(kGuid, &status));
  tell("access", ::access(kGuid, R_OK));
  std::FILE* const file = std::fopen(kGuid, "re");
  tell("stream", file != nullptr ? 0 : -1);
  DIR* const directory = ::opendir(kDevice);
  tell("directory", directory != nullptr ? 0 : -1);
  std::puts(::realpath(kDevice, text) != nullptr ? text : std::strerror(errno));
  tell("chdir", ::chdir(kDevice));
  std::puts(::getcwd(text, sizeof text) != nullptr ? text : std::strerror(errno));
  tell("device", ::open("/dev/infiniband/uverbs0", O_RDWR | O_CLOEXEC));
  if (file != nullptr) std::fclose(file);
  if (directory != nullptr) ::closedir(directory);
}

/// A signal handler interrupts the first open() of a device file, and looks for devices itself.
int handler_in_open() {
  ::signal(SIGUSR1, look_for_devices);
  run_in(HeldCall::kEventfd, [] { ::raise(SIGUSR1); });
  tell("then", ::open("/dev/infiniband/uverbs0", O_RDWR | O_CLOEXEC));
  return 0;
}

/// First calls of interposed functions while another thread loads a library: they do not wait for
/// the loader's lock.
int library_is_loaded() {
  hold_next(HeldCall::kConstructor, 0);
  std::thread loads(
      [] { expect(::dlopen("liblives_slow.so", RTLD_NOW) != nullptr, "liblives_slow.so"); });
  while (!is_held()) {
  }
  struct statfs system{};
  struct stat status{};
  char text[16];
  expect(::statfs("/", &system) == 0, "statfs");
  expect(::lstat("/", &status) == 0, "lstat");
  expect(::chdir("/") == 0, "chdir");
  expect(::getcwd(text, sizeof text) != nullptr, "getcwd");
  expect(::euidaccess("/", R_OK) == 0, "euidaccess");
  expect(::readlink("/", text, sizeof text) < 0, "readlink");
  std::puts("goes on");
  let_go();
  loads.join();
  return 0;
}

/// Far more bytes than the device moves in the turns of a few calls.
constexpr std::uint32_t kMuch = 64u << 20;

const Loop* loop_at_end;
const ibv_mr* memory_at_end;

void post_writes(ibv_qp* qp) {
  const auto place = reinterpret_cast<std::uintptr_t>(memory_at_end->addr);
  ibv_sge piece{place, kMuch, memory_at_end->lkey};
  ibv_send_wr work{};
  work.sg_list = &piece;
  work.num_sge = 1;
  work.opcode = IBV_WR_RDMA_WRITE;
  work.wr.rdma = {place, memory_at_end->rkey};
  ibv_send_wr* bad;
  for (int i = 0; i != 4; ++i) expect(ibv_post_send(qp, &work, &bad) == 0, "post");
}

/// Unmaps the doorbell pages, since a mapping keeps the device file open.
void unmap_doorbell_pages() {
  std::FILE* const maps = std::fopen("/proc/self/maps", "r");
  expect(maps != nullptr, "maps");
  for (char line[512]; std::fgets(line, sizeof line, maps) != nullptr;) {
    std::uintptr_t begin = 0, end = 0;
    if (std::strstr(line, "softhca-uverbs") == nullptr ||
        std::sscanf(line, "%" SCNxPTR "-%" SCNxPTR, &begin, &end) != 2) {
      continue;
    }
    expect(::munmap(reinterpret_cast<void*>(begin), end - begin) == 0, "munmap");
  }
  std::fclose(maps);
}

/// The engine's thread has ended, and drives nothing. A raw system call closes the last copy of the
/// descriptor, so the door does not notice, and the next open() destroys the context. At that time
/// its queues have work, and their memory cannot be accessed.
void open_again() {
  auto* const context = loop_at_end->context;
  post_writes(loop_at_end->qp);
  post_writes(loop_at_end->peer);
  ibv_wc completion{};
  (void)ibv_poll_cq(loop_at_end->cq, 1, &completion);  // the work begins
  const int copy = ::fcntl(context->cmd_fd, F_DUPFD_CLOEXEC, 0);
  expect(copy >= 0 && ibv_close_device(context) == 0, "close");
  unmap_doorbell_pages();
  expect(::mprotect(memory_at_end->addr, kMuch, PROT_NONE) == 0, "mprotect");
  ::syscall(SYS_close, copy);
  std::puts(::open("/dev/infiniband/uverbs0", O_RDWR | O_CLOEXEC) >= 0 ? "opened" : "not opened");
}

int opens_again() {
  loop_at_end = new Loop;
  void* const much =
      ::mmap(nullptr, kMuch, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memory_at_end = ibv_reg_mr(loop_at_end->pd, much, kMuch, kAccess);
  expect(memory_at_end != nullptr, "registration");
  // A context destroys its newest object first: this PD. The command gives the queues a turn while
  // the registration still exists; later they would access nothing.
  expect(ibv_alloc_pd(loop_at_end->context) != nullptr, "PD");
  call_at_end(open_again);
  return 0;
}

constexpr Case kCases[] = {
    {"mappings-are-read", mappings_are_read}, {"fork-in-first-open", fork_in_first_open},
    {"fork-in-slow-open", fork_in_slow_open}, {"handler-in-open", handler_in_open},
    {"library-is-loaded", library_is_loaded}, {"opens-again", opens_again}};

}  // namespace

std::span<const Case> held() { return kCases; }

}  // namespace lives
