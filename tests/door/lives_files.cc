// Descriptors of the door, limits of a process, and calls that are unrelated to RDMA.
#include <dirent.h>
#include <fcntl.h>
#include <infiniband/mlx5dv.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <optional>
#include <string>
#include <thread>

#include "../unit/os/forbidden_call.h"
#include "lives.h"
#include "lives_library.h"
#include "schedule.h"

namespace lives {
namespace {

ibv_device* first() {
  auto** const list = ibv_get_device_list(nullptr);
  expect(list != nullptr && list[0] != nullptr, "no device");
  return list[0];
}

ibv_context* open_first() { return ibv_open_device(first()); }

ibv_context* open_devx() {
  mlx5dv_context_attr devx{};
  devx.flags = MLX5DV_CONTEXT_FLAGS_DEVX;
  auto* const context = mlx5dv_open_device(first(), &devx);
  expect(context != nullptr, "open");
  return context;
}

int count_descriptors() {
  DIR* const folder = ::opendir("/proc/self/fd");
  int count = 0;
  while (::readdir(folder) != nullptr) ++count;
  ::closedir(folder);
  return count;
}

/// A closed device leaves no descriptor open.
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

/// A device file behaves like a character device.
int device_file() {
  auto* const context = open_first();
  const int fd = context->cmd_fd;
  char bytes[64] = {};
  tell("read", ::read(fd, bytes, sizeof bytes));
  tell("write", ::write(fd, bytes, sizeof bytes));
  const iovec piece{bytes, sizeof bytes};
  tell("writev", ::writev(fd, &piece, 1));
  tell("lseek", ::lseek(fd, 0, SEEK_END));
  tell("truncation", ::ftruncate(fd, 0));
  tell("sync", ::fsync(fd));
  int waiting = 0;
  tell("FIONREAD", ::ioctl(fd, FIONREAD, &waiting));
  ::fcntl(context->async_fd, F_SETFL, ::fcntl(context->async_fd, F_GETFL) | O_NONBLOCK);
  tell("a byte of an event", ::read(context->async_fd, bytes, 1));
  const int unused = ::open("/dev/infiniband/uverbs0", O_RDWR | O_CLOEXEC);
  tell("another file", unused);
  std::printf("its context: %s\n", ibv_import_device(unused) != nullptr ? "imported" : "none");
  return 0;
}

/// Moves a QP with an SRQ to the error state, which raises an event.
void end_with_an_event(ibv_pd* pd, ibv_cq* cq, ibv_srq* srq) {
  ibv_qp_init_attr wanted{};
  wanted.send_cq = wanted.recv_cq = cq;
  wanted.srq = srq;
  wanted.cap = {1, 0, 1, 0, 0};
  wanted.qp_type = IBV_QPT_RC;
  auto* const qp = ibv_create_qp(pd, &wanted);
  expect(qp != nullptr, "QP");
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  constexpr int kInit = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
  expect(ibv_modify_qp(qp, &attr, kInit) == 0, "INIT");
  attr.qp_state = IBV_QPS_ERR;
  expect(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0, "ERR");
}

/// Two events wait. Each read returns one, although its buffer has room for both.
int events_one_by_one() {
  auto* const context = open_first();
  auto* const pd = ibv_alloc_pd(context);
  auto* const cq = ibv_create_cq(context, 8, nullptr, nullptr, 0);
  ibv_srq_init_attr wanted{};
  wanted.attr = {8, 1, 0};
  auto* const srq = ibv_create_srq(pd, &wanted);
  expect(cq != nullptr && srq != nullptr, "SRQ");
  const int fd = context->async_fd;
  ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
  end_with_an_event(pd, cq, srq);
  end_with_an_event(pd, cq, srq);
  ibv_port_attr port{};
  for (int i = 0; i != 100; ++i) expect(ibv_query_port(context, 1, &port) == 0, "a turn");
  char bytes[64] = {};
  for (int i = 0; i != 2; ++i) std::printf("%zd bytes\n", ::read(fd, bytes, sizeof bytes));
  tell("then", ::read(fd, bytes, sizeof bytes));
  return 0;
}

/// An event channel behaves like the character device of librdmacm, which has no read().
int channel_file() {
  const int fd = ::open("/dev/infiniband/rdma_cm", O_RDWR | O_CLOEXEC);
  expect(fd >= 0, "open");
  ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
  char bytes[64] = {};
  tell("read", ::read(fd, bytes, sizeof bytes));
  tell("lseek", ::lseek(fd, 0, SEEK_END));
  tell("sync", ::fsync(fd));
  int waiting = 0;
  tell("FIONREAD", ::ioctl(fd, FIONREAD, &waiting));
  return 0;
}

/// A socket takes the number of a device file: a writev() to it makes one message.
int replaced() {
  auto* const context = open_first();
  int ends[2];
  expect(::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0, "socketpair");
  expect(::dup2(ends[0], context->cmd_fd) == context->cmd_fd, "dup2");
  char bytes[64] = {};
  const iovec pieces[] = {{bytes, 3}, {bytes, 4}};
  std::printf("%zd bytes, ", ::writev(context->cmd_fd, pieces, 2));
  std::printf("%zd of them in a message\n", ::recv(ends[1], bytes, sizeof bytes, MSG_DONTWAIT));
  return 0;
}

/// A limit on the size of files.
int small_files() {
  const rlimit limit{1000 << 10, 1000 << 10};
  expect(::setrlimit(RLIMIT_FSIZE, &limit) == 0, "setrlimit");
  std::printf("%s\n", open_first() != nullptr ? "opened" : "not opened");
  return 0;
}

/// A limit on memory that is too small for a device.
int little_memory() {
  const rlimit limit{50 << 20, 50 << 20};
  expect(::setrlimit(RLIMIT_AS, &limit) == 0, "setrlimit");
  std::printf("%s\n", open_first() != nullptr ? "opened" : "not opened");
  return 0;
}

/// Registers more memory than `ulimit -l` allows.
int locks_much() {
  const rlimit limit{64 << 10, 64 << 10};
  expect(::setrlimit(RLIMIT_MEMLOCK, &limit) == 0, "setrlimit");
  auto* const pd = ibv_alloc_pd(open_first());
  static char bytes[128 << 10];
  constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE;
  const bool registered = ibv_reg_mr(pd, bytes, sizeof bytes, kAccess) != nullptr;
  std::printf("%s\n", registered ? "registered" : std::strerror(errno));
  return 0;
}

/// The same if the limit is enforced.
int locks_too_much() {
  ::setenv("SOFTHCA_MEMLOCK", "enforce", 1);
  return locks_much();
}

/// A limit on threads.
int no_threads() {
  const rlimit limit{0, 0};
  expect(::setrlimit(RLIMIT_NPROC, &limit) == 0, "setrlimit");
  std::printf("%s\n", open_first() != nullptr ? "opened" : "not opened");
  return 0;
}

/// An address that no process has is resolved for a second; other calls do not wait for that.
int asks() {
  auto* const context = open_first();
  auto* const pd = ibv_alloc_pd(context);
  std::atomic<bool> done = false;
  const Spell spell(own_thread());
  std::thread asker([&] {
    auto attributes = unknown_address();
    if (ibv_create_ah(pd, &attributes) != nullptr) std::puts("found");
    done = true;
  });
  const int file = ::memfd_create("file", MFD_CLOEXEC);
  // Writes to pipes may be commands of librdmacm now.
  expect(::rdma_create_event_channel() != nullptr, "channel");
  int ends[2];
  expect(::pipe2(ends, O_CLOEXEC) == 0, "pipe");
  int stats = 0, verbs = 0;
  while (!done) {
    char byte = 'x';
    expect(::write(ends[1], &byte, 1) == 1 && ::read(ends[0], &byte, 1) == 1, "pipe");
    struct stat status{};
    expect(::fstat(file, &status) == 0, "fstat");
    ++stats;
    ibv_device_attr device{};
    expect(ibv_query_device(context, &device) == 0, "query");
    ++verbs;
  }
  // Few calls are enough if this thread has waited for a processor most of the time.
  const bool starved = spell.undisturbed() < spell.all() / 2;
  asker.join();
  const auto many = [starved](int calls) { return calls > 100 || starved ? "many" : "few"; };
  std::printf("%s %s\n", many(stats), many(verbs));
  return 0;
}

/// Prints whether other calls of the context go on during `call`, which takes long.
template <class Call>
void calls_beside(const char* what, ibv_context* context, Call&& call) {
  std::atomic<bool> begins = false, done = false;
  std::optional<Spell> spell;
  std::thread other([&, caller = own_thread()] {
    spell.emplace(caller);
    begins = true;
    expect(call(), what);
    done = true;
  });
  while (!begins) {
  }
  int calls = 0;
  for (ibv_device_attr device{}; !done; ++calls) {
    expect(ibv_query_device(context, &device) == 0, "query");
  }
  // Few calls are enough if this thread has waited for a processor most of the time.
  const bool starved = spell->undisturbed() < spell->all() / 2;
  other.join();
  std::printf("%s: %s\n", what, calls > 20 || starved ? "many" : "few");
}

/// Registering much memory takes long; other calls do not wait for that.
int registers() {
  constexpr std::uint32_t kMuch = 256u << 20;
  auto* const context = open_devx();
  auto* const pd = ibv_alloc_pd(context);
  const auto with_memory = [&](const char* what, auto&& call) {
    void* const much =
        ::mmap(nullptr, kMuch, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    calls_beside(what, context, [&] { return call(much); });
  };
  with_memory("region", [&](void* much) {
    auto* const region = ibv_reg_mr(pd, much, kMuch, kAccess);
    return region != nullptr && ::munmap(much, kMuch) == 0;
  });
  with_memory("umem", [&](void* much) {
    auto* const umem = mlx5dv_devx_umem_reg(context, much, kMuch, IBV_ACCESS_LOCAL_WRITE);
    return umem != nullptr && ::munmap(much, kMuch) == 0;
  });
  with_memory("prefetched", [&](void* much) {
    auto* const region = ibv_reg_mr(pd, much, kMuch, kAccess | IBV_ACCESS_ON_DEMAND);
    ibv_sge piece{reinterpret_cast<std::uintptr_t>(much), kMuch, region->lkey};
    return ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, IBV_ADVISE_MR_FLAG_FLUSH, &piece,
                         1) == 0;
  });
  return 0;
}

void print_states() {
  for (const auto* name : {"state", "phys_state"}) {
    const auto path = std::string("/sys/class/infiniband/mlx5_0/ports/1/") + name;
    const int file = ::open(path.c_str(), O_RDONLY);
    char text[64] = "";
    expect(::read(file, text, sizeof text - 1) > 0, name);
    std::printf("%s", text);
  }
  std::fflush(stdout);
}

/// The hub ends. With --private, it is in `softhca run` itself.
int hub_ends() {
  auto* const context = open_first();
  expect(context != nullptr && ::kill(::getppid(), SIGKILL) == 0, "kill");
  ibv_async_event event{};
  expect(ibv_get_async_event(context, &event) == 0, "event");
  std::printf("%s\n", ibv_event_type_str(event.event_type));
  ibv_ack_async_event(&event);
  ibv_port_attr port{};
  expect(ibv_query_port(context, 1, &port) == 0, "port");
  std::printf("%s\n", ibv_port_state_str(port.state));
  std::fflush(stdout);
  // A child has no device, so it checks the hub's socket. The parent's device has noticed the end
  // itself, and needs no socket.
  const auto child = ::fork();
  if (child == 0) {
    print_states();
    ::_exit(0);
  }
  expect(::waitpid(child, nullptr, 0) == child, "child");
  const auto hub = std::string(std::getenv("SOFTHCA_DOOR")) + "/hub";
  expect(::unlink(hub.c_str()) == 0, "unlink");
  print_states();
  return 0;
}

/// The hub does not answer while a device is opened: other devices go on. With --private, the hub
/// is in `softhca run` itself.
int hub_stops() {
  auto** const list = ibv_get_device_list(nullptr);
  expect(list != nullptr && list[0] != nullptr && list[1] != nullptr, "two devices");
  auto* const context = ibv_open_device(list[0]);
  expect(context != nullptr && ::kill(::getppid(), SIGSTOP) == 0, "kill");
  std::atomic<bool> begins = false, done = false;
  bool opened = false;
  std::thread other([&] {
    begins = true;
    opened = ibv_open_device(list[1]) != nullptr;
    done = true;
  });
  while (!begins) {
  }
  for (int i = 0; i != 20'000; ++i) {
    ibv_device_attr device{};
    expect(ibv_query_device(context, &device) == 0, "query");
  }
  std::puts(done ? "has not waited" : "waits");
  expect(::kill(::getppid(), SIGCONT) == 0, "kill");
  other.join();
  std::puts(opened ? "opened" : "not opened");
  return 0;
}

/// Writes to the program's own memory by RDMA.
const char* write_once(const Loop& loop) {
  auto* const buffer = memory();
  auto* const key = ibv_reg_mr(loop.pd, buffer, kSize, kAccess);
  expect(key != nullptr, "registration");
  return access(loop, IBV_WR_RDMA_WRITE, buffer, key->lkey, buffer + 8, key->rkey);
}

/// The lowest number to which the library moves descriptors that it keeps.
int lowest_kept() {
  rlimit limit{};
  expect(::getrlimit(RLIMIT_NOFILE, &limit) == 0, "getrlimit");
  return static_cast<int>(std::min<rlim_t>(1024, limit.rlim_cur / 2));
}

/// Files that the program opens, with each free number that the library could have had for its own,
/// and never writes to. bytes(): the bytes in them, all written by the library.
class OwnFiles {
 public:
  OwnFiles() {
    const int lowest = lowest_kept();
    for (auto& file : files_) {
      const int low = ::memfd_create("own", 0);
      file = ::fcntl(low, F_DUPFD, lowest);
      expect(file >= lowest, "own file");
    }
  }
  long bytes() const {
    long all = 0;
    for (const int file : files_) {
      struct stat status{};
      expect(::fstat(file, &status) == 0, "fstat");
      all += status.st_size;
    }
    return all;
  }

 private:
  std::array<int, 64> files_{};
};

/// A program closes all descriptors that it does not know, and opens files. The library writes
/// nothing to them.
int closes_unknown() {
  const Loop loop(true);
  const int known[] = {loop.context->cmd_fd, loop.context->async_fd, loop.channel->fd};
  const auto use = [&loop](const OwnFiles& files) {
    for (int i = 0; i != 20; ++i) {
      auto* const cq = ibv_create_cq(loop.context, 1, nullptr, nullptr, 0);
      expect(cq != nullptr && ibv_destroy_cq(cq) == 0, "CQ");
    }
    std::printf("%s, %ld bytes\n", write_once(loop), files.bytes());
  };
  for (int fd = 3; fd != 4096; ++fd) {
    if (std::ranges::find(known, fd) != std::end(known)) continue;
    expect(::close(fd) != 0 || fd < lowest_kept(), "a descriptor of the library is closed");
  }
  use(OwnFiles());
  const auto last = static_cast<unsigned>(*std::ranges::max_element(known));
  expect(::close_range(last + 1, ~0u, 0) == 0, "close_range");
  use(OwnFiles());
  ::closefrom(static_cast<int>(last) + 1);
  use(OwnFiles());
  // Now the device as well.
  ::closefrom(3);
  const OwnFiles files;
  std::printf("%d, %ld bytes\n", ibv_alloc_pd(loop.context) != nullptr, files.bytes());
  return 0;
}

/// A program that is started without standard error.
int closed_errors() {
  ::setenv("SOFTHCA_LOG", "loud", 1);  // the library says that there is no such level
  ::close(STDERR_FILENO);
  ::execl("/proc/self/exe", "lives", "file-of-errors", static_cast<char*>(nullptr));
  return 1;
}

/// A file of the program has the number of standard error: no log line is written into it.
int file_of_errors() {
  const OwnFiles files;
  expect(open_first() != nullptr, "open");
  std::printf("%ld bytes\n", files.bytes());
  return 0;
}

/// The program closes standard error itself.
int closes_errors() {
  ::setenv("SOFTHCA_LOG", "loud", 1);
  ::close(STDERR_FILENO);
  return file_of_errors();
}

/// A seccomp filter forbids the calls that copy a process's memory.
int no_copies() {
  expect(softhca::test::forbid_call(SYS_process_vm_readv, EPERM), "seccomp");
  std::printf("%s\n", open_first() != nullptr ? "opened" : "not opened");
  return 0;
}

/// The program runs as another user than the run: the library warns.
int another_user() {
  int count = 0;
  (void)ibv_get_device_list(&count);
  std::printf("%d devices\n", count);
  return 0;
}

/// The doorbell page cannot be registered.
int doorbell_page() {
  auto* const context = open_devx();
  auto* const pd = ibv_alloc_pd(context);
  auto* const uar = mlx5dv_devx_alloc_uar(context, MLX5DV_UAR_ALLOC_TYPE_NC);
  expect(uar != nullptr, "UAR");
  for (const int access : {0, 1, 7}) {
    errno = 0;
    auto* const region = ibv_reg_mr(pd, uar->base_addr, 4096, access);
    std::printf("access %d: %s\n", access, region != nullptr ? "ok" : std::strerror(errno));
  }
  auto* const umem = mlx5dv_devx_umem_reg(context, uar->base_addr, 4096, IBV_ACCESS_LOCAL_WRITE);
  std::printf("umem: %s\n", umem != nullptr ? "ok" : std::strerror(errno));
  return 0;
}

/// A CQ that is armed for any completion, and then for solicited ones: any completion raises the
/// event. On one processor, the thread of the devices rarely runs between the two requests: it
/// would take the first one as well.
int armed_twice() {
  constexpr int kRounds = 100;
  stay_on_one_processor();
  const Loop loop(true);
  auto* const buffer = memory();
  auto* const key = ibv_reg_mr(loop.pd, buffer, kSize, kAccess);
  for (int i = 0; i != kRounds; ++i) {
    expect(ibv_req_notify_cq(loop.cq, 0) == 0 && ibv_req_notify_cq(loop.cq, 1) == 0, "arm");
    post(loop, IBV_WR_RDMA_WRITE, buffer, key->lkey, buffer + 8, key->rkey);
    pollfd at{.fd = loop.channel->fd, .events = POLLIN, .revents = 0};
    if (::poll(&at, 1, 10'000) != 1) {
      std::printf("asleep in round %d\n", i);
      return 0;
    }
    ibv_cq* cq = nullptr;
    void* context = nullptr;
    expect(ibv_get_cq_event(loop.channel, &cq, &context) == 0, "event");
    ibv_ack_cq_events(cq, 1);
    for (ibv_wc completion{}; ibv_poll_cq(loop.cq, 1, &completion) == 0;) {
    }
  }
  std::printf("woken\n");
  return 0;
}

/// The thread of the devices looks for free processors without streams of libc. Their lock would be
/// taken for ever in a child that was created meanwhile, without fork().
int no_streams() {
  const Loop loop(true);
  auto* const buffer = memory();
  auto* const key = ibv_reg_mr(loop.pd, buffer, kSize, kAccess);
  expect(ibv_req_notify_cq(loop.cq, 0) == 0, "arm");
  post(loop, IBV_WR_RDMA_WRITE, buffer, key->lkey, buffer + 8, key->rkey);
  // Without a poll, that thread alone raises the event. It has looked before.
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  expect(ibv_get_cq_event(loop.channel, &cq, &context) == 0, "event");
  std::printf("%d streams\n", opened_quota_streams());
  return 0;
}

/// The run ends, and one of its processes goes on.
int outlives() {
  if (::fork() != 0) return 0;
  const int events = ::inotify_init1(IN_CLOEXEC);
  expect(events >= 0, "inotify");
  // This fails if the run has already ended.
  if (::inotify_add_watch(events, std::getenv("SOFTHCA_DOOR"), IN_DELETE_SELF) >= 0) {
    inotify_event event;
    expect(::read(events, &event, sizeof event) > 0, "the end of the run");
  }
  int count = 0;
  (void)ibv_get_device_list(&count);
  std::printf("%d devices\n", count);
  return 0;
}

constexpr Case kCases[] = {{"little-memory", little_memory},
                           {"doorbell-page", doorbell_page},
                           {"another-user", another_user},
                           {"hub-ends", hub_ends},
                           {"hub-stops", hub_stops},
                           {"closes-unknown", closes_unknown},
                           {"closed-errors", closed_errors},
                           {"file-of-errors", file_of_errors},
                           {"closes-errors", closes_errors},
                           {"no-copies", no_copies},
                           {"outlives", outlives},
                           {"no-streams", no_streams},
                           {"closed", closed},
                           {"armed-twice", armed_twice},
                           {"device-file", device_file},
                           {"events-one-by-one", events_one_by_one},
                           {"channel-file", channel_file},
                           {"replaced", replaced},
                           {"small-files", small_files},
                           {"locks-much", locks_much},
                           {"locks-too-much", locks_too_much},
                           {"no-threads", no_threads},
                           {"asks", asks},
                           {"registers", registers}};

}  // namespace

std::span<const Case> files() { return kCases; }

}  // namespace lives
