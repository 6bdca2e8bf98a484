#include "door/device_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <ctime>

#include "util/open_file.h"

namespace softhca::door {
namespace {

/// Sparse: doorbell pages lie behind the offsets that the mlx5 driver gives to pages of old.
constexpr off_t kSize = off_t{256} << 20;

/// Beyond RLIMIT_FSIZE a file cannot grow, and the signal that says so would end the program.
class NoSizeSignal {
 public:
  NoSizeSignal() {
    sigset_t waiting;
    ::sigpending(&waiting);
    waits_ = ::sigismember(&waiting, SIGXFSZ) == 1;
    ::pthread_sigmask(SIG_BLOCK, &only(), &before_);
  }
  ~NoSizeSignal() {
    const int error = errno;
    constexpr timespec kNow{};
    while (!waits_ && ::sigtimedwait(&only(), nullptr, &kNow) == SIGXFSZ) {
    }
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    errno = error;
  }
  NoSizeSignal(const NoSizeSignal&) = delete;
  NoSizeSignal& operator=(const NoSizeSignal&) = delete;

 private:
  static const sigset_t& only() {
    static const sigset_t set = [] {
      sigset_t one;
      ::sigemptyset(&one);
      ::sigaddset(&one, SIGXFSZ);
      return one;
    }();
    return set;
  }

  sigset_t before_{};
  bool waits_ = false;  ///< one of the program's own
};

bool set_size(int fd) {
  const NoSizeSignal guard;
  return ::ftruncate(fd, kSize) == 0;
}

}  // namespace

util::Result<DeviceFile> DeviceFile::create(int& fd) {
  DeviceFile file;
  file.own_.reset(::memfd_create("softhca-uverbs", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file.own_) return util::fail_errno("memfd for a device file");
  if (const int high = util::copy_to_high_number(file.own_.get()); high >= 0) file.own_.reset(high);
  if (!set_size(file.own_.get())) return util::fail_errno("a device file (see ulimit -f)");
  // Another process that has the file cannot take the doorbells away.
  (void)::fcntl(file.own_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  if (::fstat(file.own_.get(), &file.status_) != 0) return util::fail_errno("fstat");
  // An open file of its own, whose mark goes when the last copy of it does.
  fd = util::reopen(file.own_.get(), O_RDWR);
  if (fd < 0) return util::fail_errno("open a device file anew");
  if (auto marked = util::mark_open(fd); !marked) {
    ::close(fd);
    return tl::unexpected(marked.error());
  }
  return file;
}

bool DeviceFile::store(std::uint64_t offset, std::span<const std::byte> bytes) const {
  return ::pwrite(own_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset)) ==
         static_cast<ssize_t>(bytes.size());
}

bool DeviceFile::closed() const { return !util::is_marked_open(own_.get()); }

}  // namespace softhca::door
