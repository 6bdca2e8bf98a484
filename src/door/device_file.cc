#include "door/device_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "util/open_file.h"

namespace softhca::door {
namespace {

/// Sparse: doorbell pages lie behind the offsets that the mlx5 driver gives to pages of old.
constexpr off_t kSize = off_t{256} << 20;

}  // namespace

util::Result<DeviceFile> DeviceFile::create(int& fd) {
  DeviceFile file;
  file.own_.reset(::memfd_create("softhca-uverbs", MFD_CLOEXEC));
  if (!file.own_) return util::fail_errno("memfd for a device file");
  if (::ftruncate(file.own_.get(), kSize) != 0) return util::fail_errno("size of a device file");
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
