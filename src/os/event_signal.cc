#include "os/event_signal.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "util/log.h"

namespace softhca::os {
namespace {

constexpr unsigned kEvents = 32;
/// Tries of a submission while other threads use all requests of the context.
constexpr int kAttempts = 8;

/// The head of the completion ring, which the kernel maps at the context's address; libaio relies
/// on it too.
struct Ring {
  std::uint32_t id;
  std::uint32_t entries;
  std::uint32_t head;  ///< written by the program
  std::uint32_t tail;
};

/// Marks all completions as read, because they carry no information. Threads that do this
/// concurrently leave the head at the tail that one of them read; the next call advances it.
void forget_completions(aio_context_t context) {
  auto* ring = reinterpret_cast<Ring*>(context);
  const auto tail = __atomic_load_n(&ring->tail, __ATOMIC_ACQUIRE);
  __atomic_store_n(&ring->head, tail, __ATOMIC_RELEASE);
}

void make_nonblocking(int eventfd) {
  const auto flags = ::fcntl(eventfd, F_GETFL);
  if (!(flags & O_NONBLOCK)) ::fcntl(eventfd, F_SETFL, flags | O_NONBLOCK);
}

/// Fallback without AIO.
void write_to(int eventfd) {
  make_nonblocking(eventfd);
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(eventfd, &one, sizeof one);
}

}  // namespace

EventSignal& EventSignal::instance() {
  static EventSignal signal;
  return signal;
}

EventSignal::EventSignal()
    : readable_(::open("/dev/null", O_RDONLY | O_CLOEXEC)),
      unreadable_(::open("/dev/null", O_WRONLY | O_CLOEXEC)) {
  if (readable_ && unreadable_ && ::syscall(SYS_io_setup, kEvents, &context_) == 0) return;
  context_ = 0;
  util::log(util::LogLevel::kWarning,
            "the kernel has no asynchronous I/O (io_setup): a client can hold up the others by an "
            "eventfd that is full");
}

EventSignal::~EventSignal() {
  if (context_ != 0) ::syscall(SYS_io_destroy, context_);
}

int EventSignal::submit(int file, int eventfd) {
  iocb read{};
  read.aio_lio_opcode = IOCB_CMD_PREAD;
  read.aio_fildes = static_cast<std::uint32_t>(file);
  read.aio_flags = IOCB_FLAG_RESFD;
  read.aio_resfd = static_cast<std::uint32_t>(eventfd);
  iocb* reads[] = {&read};
  const auto error = ::syscall(SYS_io_submit, context_, 1, reads) == 1 ? 0 : errno;
  forget_completions(context_);
  return error;
}

bool EventSignal::is_eventfd(int fd) {
  // The kernel checks the eventfd before it checks the file to read, which fails with EBADF.
  if (never_waits()) return submit(unreadable_.get(), fd) == EBADF;
  struct stat status;
  return ::fstat(fd, &status) == 0 &&
         (status.st_mode & S_IFMT) == 0;  // an eventfd has no file type
}

void EventSignal::raise(int eventfd) {
  for (int attempt = 0; never_waits() && attempt < kAttempts; ++attempt) {
    if (submit(readable_.get(), eventfd) == 0) return;
  }
  write_to(eventfd);
}

void EventSignal::drain(int eventfd) {
  std::uint64_t count = 0;
  const iovec place{.iov_base = &count, .iov_len = sizeof count};
  if (::preadv2(eventfd, &place, 1, -1, RWF_NOWAIT) >= 0 || errno == EAGAIN) return;
  make_nonblocking(eventfd);
  (void)!::read(eventfd, &count, sizeof count);
}

}  // namespace softhca::os
