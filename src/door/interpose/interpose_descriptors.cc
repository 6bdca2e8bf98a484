// Calls on descriptors that the library gave to the program (descriptors.h). They refuse what
// Linux's uverbs devices refuse, and notice closed descriptors.
#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/fs.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdint>

#include "door/interpose/interpose.h"
#include "door/kernel.h"
#include "door/process/descriptors.h"
#include "door/process/standard_error.h"
#include "os/kept_descriptors.h"
#include "uverbs/event_pipe.h"

namespace softhca::door {
namespace {

/// RDMA_VERBS_IOCTL of the kernel's include/uapi/rdma/rdma_user_ioctl_cmds.h.
constexpr std::uint32_t kVerbsIoctl = 0xc0181b01;

SOFTHCA_NEXT Next<int, int, unsigned long, void*> next_ioctl("ioctl");
SOFTHCA_NEXT Next<ssize_t, int, const void*, std::size_t> next_write("write");
SOFTHCA_NEXT Next<ssize_t, int, void*, std::size_t> next_read("read");
SOFTHCA_NEXT Next<off_t, int, off_t, int> next_lseek("lseek");
SOFTHCA_NEXT Next<int, int> next_close("close");
SOFTHCA_NEXT Next<int, int, off_t> next_ftruncate("ftruncate");
SOFTHCA_NEXT Next<int, int> next_fsync("fsync");
SOFTHCA_NEXT Next<int, int> next_fdatasync("fdatasync");
SOFTHCA_NEXT Next<int, unsigned, unsigned, int> next_close_range("close_range");
SOFTHCA_NEXT Next<void, int> next_closefrom("closefrom");
SOFTHCA_NEXT Next<int, int, int> next_dup2("dup2");
SOFTHCA_NEXT Next<int, int, int, int> next_dup3("dup3");

/// The kind of a descriptor that the library gave to the program.
struct Kind {
  bool device = false;     ///< a device file
  bool channel = false;    ///< an event channel of librdmacm
  std::size_t record = 0;  ///< bytes of an event, if it is an event descriptor
};

Kind present_kind(int fd) {
  struct stat status{};
  if (::fstat(fd, &status) != 0) return {};
  if (S_ISREG(status.st_mode)) return {.device = device_of(status.st_dev, status.st_ino) != 0};
  if (!S_ISFIFO(status.st_mode)) return {};
  const auto record = uverbs::EventPipe::known().find(status.st_dev, status.st_ino);
  if (record) return {.record = *record};
  return {.channel = device_of_channel(status.st_dev, status.st_ino) != 0};
}

/// The present kind of the program's descriptor `fd`: the program may have replaced it.
Kind kind_of(int fd) {
  if (!Descriptors::may_be_ours(fd) || wanted_paths() == nullptr) return {};
  const int before = errno;
  const OwnCalls own;
  const auto kind = present_kind(fd);
  errno = before;
  return kind;
}

template <class Result = int>
Result refuse(int wrong) {
  errno = wrong;
  return Result(-1);
}

/// Whether the kernel serves this ioctl request for files or pipes, but refuses it for character
/// devices.
bool is_of_files(unsigned long request) { return request == FIONREAD || request == FIBMAP; }

/// ib_uverbs_event_read waits for an event before it checks the buffer's size.
int why_not_part_of_an_event(int fd) {
  const bool waits = (::fcntl(fd, F_GETFL) & O_NONBLOCK) == 0;
  pollfd event{.fd = fd, .events = POLLIN, .revents = 0};
  const int got = ::poll(&event, 1, waits ? -1 : 0);
  return got > 0 ? EINVAL : got == 0 ? EAGAIN : errno;
}

void report_closed() {
  const int before = errno;
  const OwnCalls own;
  note_closed();
  errno = before;
}

/// Passes on a result of dup2() or dup3(), which may have moved standard error.
int after_dup(int result) {
  if (result != STDERR_FILENO || wanted_paths() == nullptr) return result;
  const int before = errno;
  const OwnCalls own;
  note_standard_error();
  errno = before;
  return result;
}

/// close_range(), except for descriptors that the library keeps.
int close_around(unsigned first, unsigned last, int flags) {
  for (auto from = first; from <= last;) {
    const auto kept = static_cast<unsigned>(os::next_kept(static_cast<int>(from)));
    const bool ends = kept > last;  // -1: none is left
    if (from != kept && next_close_range(from, ends ? last : kept - 1, flags) != 0) return -1;
    if (ends || kept == last) break;
    from = kept + 1;
  }
  if (!shares_memory_of_another() && Descriptors::forget_all(first, last)) report_closed();
  return 0;
}

}  // namespace

SOFTHCA_INTERPOSE(int, door_ioctl, "ioctl", (int fd, unsigned long request, ...)) {
  va_list rest;
  va_start(rest, request);
  void* const argument = va_arg(rest, void*);
  va_end(rest);
  if (static_cast<std::uint32_t>(request) == kVerbsIoctl && wanted_paths() != nullptr) {
    const int before = errno;
    int result = 0;
    bool served;
    {
      const OwnCalls own;
      served = serve_ioctl(fd, argument, result);
    }
    errno = before;
    if (served) return result >= 0 ? result : refuse(-result);
  }
  if (is_of_files(request)) {
    const auto kind = kind_of(fd);
    if (kind.device || kind.channel || kind.record != 0) return refuse(ENOTTY);
  }
  return next_ioctl(fd, request, argument);
}

// Commands of rdma_cm are writes. In programs without rdma_cm this costs one check of a flag.
SOFTHCA_INTERPOSE(ssize_t, door_write, "write", (int fd, const void* bytes, std::size_t size)) {
  if (has_channels() && wanted_paths() != nullptr) {
    const int before = errno;
    ssize_t result = 0;
    bool served;
    {
      const OwnCalls own;
      served = serve_write(fd, bytes, size, result);
    }
    errno = before;
    if (served) return result >= 0 ? result : refuse<ssize_t>(static_cast<int>(-result));
  }
  // No library uses the legacy write() commands if ioctl() is available.
  if (Descriptors::may_be_ours(fd) && kind_of(fd).device) return refuse<ssize_t>(EINVAL);
  return next_write(fd, bytes, size);
}

SOFTHCA_INTERPOSE(ssize_t, door_read, "read", (int fd, void* bytes, std::size_t size)) {
  const auto kind = kind_of(fd);
  if (kind.device || kind.channel) return refuse<ssize_t>(EINVAL);
  if (size < kind.record) return refuse<ssize_t>(why_not_part_of_an_event(fd));
  // As ib_uverbs_event_read(): one event, however much room there is.
  return next_read(fd, bytes, kind.record != 0 ? kind.record : size);
}

SOFTHCA_INTERPOSE(off_t, door_lseek, "lseek", (int fd, off_t offset, int from)) {
  if (kind_of(fd).device) return refuse<off_t>(ESPIPE);
  return next_lseek(fd, offset, from);
}

SOFTHCA_INTERPOSE(int, door_ftruncate, "ftruncate", (int fd, off_t size)) {
  return kind_of(fd).device ? refuse(EINVAL) : next_ftruncate(fd, size);
}

SOFTHCA_INTERPOSE(int, door_fsync, "fsync", (int fd)) {
  return kind_of(fd).device ? refuse(EINVAL) : next_fsync(fd);
}

SOFTHCA_INTERPOSE(int, door_fdatasync, "fdatasync", (int fd)) {
  return kind_of(fd).device ? refuse(EINVAL) : next_fdatasync(fd);
}

// Some programs close all unknown descriptors. Descriptors that the library keeps stay open:
// otherwise the library would write to whatever the program opens with the same number.
SOFTHCA_INTERPOSE(int, door_close, "close", (int fd)) {
  if (!Descriptors::may_be_ours(fd) && !os::is_kept(fd)) return next_close(fd);
  if (wanted_paths() == nullptr) {
    os::forget_kept(fd);
    return next_close(fd);
  }
  if (os::is_kept(fd)) return refuse(EBADF);
  if (shares_memory_of_another()) return next_close(fd);
  Descriptors::forget(fd);
  const int result = next_close(fd);
  report_closed();
  return result;
}

SOFTHCA_INTERPOSE(int, door_dup2, "dup2", (int fd, int wanted)) {
  return os::is_kept(wanted) && wanted_paths() != nullptr ? refuse(EBADF)
                                                          : after_dup(next_dup2(fd, wanted));
}

SOFTHCA_INTERPOSE(int, door_dup3, "dup3", (int fd, int wanted, int flags)) {
  return os::is_kept(wanted) && wanted_paths() != nullptr ? refuse(EBADF)
                                                          : after_dup(next_dup3(fd, wanted, flags));
}

SOFTHCA_INTERPOSE(int, door_close_range, "close_range",
                  (unsigned first, unsigned last, int flags)) {
  const bool closes = (static_cast<unsigned>(flags) & CLOSE_RANGE_CLOEXEC) == 0;
  if (first > last || !closes || wanted_paths() == nullptr) {
    return next_close_range(first, last, flags);
  }
  return close_around(first, last, flags);
}

SOFTHCA_INTERPOSE(void, door_closefrom, "closefrom", (int lowest)) {
  const auto first = static_cast<unsigned>(std::max(lowest, 0));
  if (wanted_paths() == nullptr || close_around(first, ~0u, 0) != 0) next_closefrom(lowest);
}

SOFTHCA_INTERPOSE_ALIAS(int, door_ftruncate64, "ftruncate64", (int, off_t), "ftruncate");
SOFTHCA_INTERPOSE_ALIAS(off_t, door_lseek64, "lseek64", (int, off_t, int), "lseek");

}  // namespace softhca::door
