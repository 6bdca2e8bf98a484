// The engine's calls of librdmacm.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>

#include "door/engine/engine.h"
#include "door/memory/fault_guard.h"

namespace softhca::door {
namespace {

/// The descriptor of a call that waits. close() is a cancellation point, and a destructor must not
/// be cancelled.
class HeldOpen {
 public:
  ~HeldOpen() {
    const CancelGuard guard;
    fd_.reset();
  }
  void hold(int fd) { fd_.reset(::fcntl(fd, F_DUPFD_CLOEXEC, 0)); }
  explicit operator bool() const { return static_cast<bool>(fd_); }
  int get() const { return fd_.get(); }

 private:
  os::UniqueFd fd_;
};

}  // namespace

int Engine::open_rdma_cm() {
  auto& cards = state_.cards();
  for (unsigned place = 0; place != cards.count(); ++place) {
    if (!cards.make(place)) return -EIO;
  }
  const std::lock_guard held(lock_);
  const FaultGuard guard;
  return state_.channels().open();
}

bool Engine::owns_channel(dev_t device, ino_t inode) {
  const std::lock_guard held(lock_);
  return state_.channels().find(device, inode) != nullptr;
}

std::optional<int> Engine::serve_channel_once(dev_t device, ino_t inode, const void* bytes,
                                              std::size_t size) {
  const std::lock_guard held(lock_);
  const FaultGuard guard;
  auto* const channel = state_.channels().find(device, inode);
  if (channel == nullptr) return std::nullopt;
  (void)state_.turn();
  const int wrong = state_.channels().serve(*channel, bytes, size);
  (void)state_.turn();
  state_.waker().wake();
  return wrong;
}

bool Engine::serve_rdma_cm(int fd, const void* bytes, std::size_t size, ssize_t& result) {
  struct stat status{};
  if (::fstat(fd, &status) != 0 || !S_ISFIFO(status.st_mode)) return false;
  // A call that waits holds the open file, as the kernel's does: another thread may close `fd`.
  HeldOpen held;
  for (;;) {
    const auto wrong = serve_channel_once(status.st_dev, status.st_ino, bytes, size);
    if (!wrong) return false;
    result = *wrong == 0 ? static_cast<ssize_t>(size) : -*wrong;
    if (*wrong != EAGAIN) return true;
    if (!held) {
      struct stat same{};
      held.hold(fd);
      if (!held || ::fstat(held.get(), &same) != 0 || same.st_ino != status.st_ino) break;
    }
    if ((::fcntl(held.get(), F_GETFL) & O_NONBLOCK) != 0) return true;
    // Waits by read(), because the kernel restarts it after a signal like the original call. poll()
    // is never restarted.
    char byte;
    if (::read(held.get(), &byte, 1) < 0) {
      result = -errno;
      return true;
    }
  }
  // The channel was closed before the wait began. The kernel's call would keep waiting: so does
  // rping's while its process ends.
  (void)::pause();
  result = -EINTR;
  return true;
}

}  // namespace softhca::door
