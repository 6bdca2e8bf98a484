#include "door/device_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

namespace softhca::door {
namespace {

/// Sparse: doorbell pages lie behind the offsets that the mlx5 driver gives to pages of old.
constexpr off_t kSize = off_t{256} << 20;

struct flock whole_file(short type) {
  struct flock lock{};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  return lock;
}

}  // namespace

util::Result<DeviceFile> DeviceFile::create(int& fd) {
  DeviceFile file;
  file.own_.reset(::memfd_create("softhca-uverbs", MFD_CLOEXEC));
  if (!file.own_) return util::fail_errno("memfd for a device file");
  if (::ftruncate(file.own_.get(), kSize) != 0) return util::fail_errno("size of a device file");
  if (::fstat(file.own_.get(), &file.status_) != 0) return util::fail_errno("fstat");
  // An open file of its own, so that its lock goes when the last copy of it does.
  const auto name = fmt::format("/proc/self/fd/{}", file.own_.get());
  fd = ::open(name.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return util::fail_errno("open " + name);
  auto lock = whole_file(F_WRLCK);
  if (::fcntl(fd, F_OFD_SETLK, &lock) != 0) {
    ::close(fd);
    return util::fail_errno("lock of a device file");
  }
  return file;
}

bool DeviceFile::store(std::uint64_t offset, std::span<const std::byte> bytes) const {
  return ::pwrite(own_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset)) ==
         static_cast<ssize_t>(bytes.size());
}

bool DeviceFile::closed() const {
  auto lock = whole_file(F_WRLCK);
  return ::fcntl(own_.get(), F_OFD_GETLK, &lock) == 0 && lock.l_type == F_UNLCK;
}

}  // namespace softhca::door
