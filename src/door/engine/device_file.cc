#include "door/engine/device_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>

#include "os/file_size.h"
#include "os/kept_fd.h"
#include "os/open_file.h"

namespace softhca::door {
namespace {

/// Sparse: doorbell pages lie behind the offsets that the mlx5 driver gives to legacy pages.
constexpr std::size_t kFileSize = std::size_t{256} << 20;

/// `fd` becomes -errno.
tl::unexpected<util::Error> failed(int& fd, std::string what) {
  fd = -errno;
  return util::fail_errno(std::move(what));
}

}  // namespace

util::Result<DeviceFile> DeviceFile::create(int& fd) {
  DeviceFile file;
  file.own_.reset(::memfd_create("softhca-uverbs", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file.own_) return failed(fd, "memfd for a device file");
  file.own_ = os::keep(std::move(file.own_));
  if (auto sized = os::set_file_size(file.own_.get(), kFileSize, "a device file"); !sized) {
    fd = -errno;
    return tl::unexpected(sized.error());
  }
  // Another process with the file cannot shrink it and so remove the doorbells.
  (void)::fcntl(file.own_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  if (::fstat(file.own_.get(), &file.status_) != 0) return failed(fd, "fstat");
  // A separate open file: its mark ends when the last copy of the program's descriptor is closed.
  fd = os::reopen(file.own_.get(), O_RDWR);
  if (fd < 0) {
    auto error = failed(fd, "open a device file anew (is /proc mounted?)");
    if (fd == -ENOENT) fd = -EIO;  // the program's name for the file is right
    return error;
  }
  if (auto marked = os::mark_open(fd); !marked) {
    const int wrong = errno;
    ::close(fd);
    fd = -wrong;
    return tl::unexpected(marked.error());
  }
  return file;
}

bool DeviceFile::store(std::uint64_t offset, std::span<const std::byte> bytes) const {
  return os::write_at(own_.get(), bytes, static_cast<off_t>(offset));
}

bool DeviceFile::closed() const { return !os::is_marked_open(own_.get()); }

}  // namespace softhca::door
