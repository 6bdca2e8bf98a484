// Descriptors of the door, and the descriptors that a program closes or takes.
#include <dirent.h>
#include <fcntl.h>
#include <infiniband/mlx5dv.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "lives.h"

namespace lives {
namespace {

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

constexpr Case kCases[] = {
    {"doorbell-page", doorbell_page}, {"closes-unknown", closes_unknown},
    {"closed-errors", closed_errors}, {"file-of-errors", file_of_errors},
    {"closes-errors", closes_errors}, {"closed", closed},
    {"device-file", device_file},     {"events-one-by-one", events_one_by_one},
    {"channel-file", channel_file},   {"replaced", replaced}};

}  // namespace

std::span<const Case> files() { return kCases; }

}  // namespace lives
