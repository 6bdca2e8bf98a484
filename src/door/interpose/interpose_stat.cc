// The stat family: device files, and the files of contexts, appear as character devices.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cstdint>

#include "door/interpose/interpose.h"
#include "door/tree/tree.h"

namespace softhca::door {
namespace {

/// World-readable and writable (the kernel's rule for uverbs devices).
constexpr mode_t kDeviceMode = S_IFCHR | 0666;

dev_t number_of_device(unsigned file) {
  if (file == kRdmaCmFile) return ::makedev(kRdmaCmMajor, kRdmaCmMinor);
  return ::makedev(kUverbsMajor, kUverbsMinor + file);
}

/// Adjusts `status` for a file that was named by a descriptor or by an unserved name, and returns
/// `result`.
int shown(int result, struct stat* status) {
  if (result != 0) return result;
  const auto device =
      device_number(status->st_mode, status->st_nlink, status->st_dev, status->st_ino);
  if (device == 0) return result;
  status->st_mode = kDeviceMode;
  status->st_rdev = device;
  return result;
}

/// As in sysfs, each file has the size of one page, and one link: hard links of the tree are
/// separate files to the program.
constexpr off_t kSysfsFileSize = 4096;
constexpr std::uint32_t kSysfsLinks = 1;

void show_device(dev_t device, struct statx& status) {
  status.stx_mode = static_cast<std::uint16_t>(kDeviceMode);
  status.stx_rdev_major = ::major(device);
  status.stx_rdev_minor = ::minor(device);
}

int shown(int result, struct statx* status) {
  if (result != 0) return result;
  const auto device =
      device_number(status->stx_mode, status->stx_nlink,
                    ::makedev(status->stx_dev_major, status->stx_dev_minor), status->stx_ino);
  if (device != 0) show_device(device, *status);
  return result;
}

/// Uses the system call; its structure is libc's if off_t has 64 bits.
int ask_kernel(int directory, const char* path, struct stat* status, int flags) {
  return static_cast<int>(::syscall(SYS_newfstatat, directory, path, status, flags));
}

/// Stats a served file. A device file's link in the tree is not shown as a link.
int stat_served(const Named& named, struct stat* status, int flags) {
  const int follow = named.device_file() ? flags & ~AT_SYMLINK_NOFOLLOW : flags;
  const int result = ask_kernel(AT_FDCWD, named.path(), status, follow);
  if (result != 0) return result;
  if (!named.device_file()) {
    if (S_ISREG(status->st_mode)) {
      status->st_size = kSysfsFileSize;
      status->st_nlink = kSysfsLinks;
    }
    return result;
  }
  status->st_mode = kDeviceMode;
  status->st_rdev = number_of_device(*named.device_file());
  return result;
}

SOFTHCA_NEXT Next<int, const char*, struct stat*> next_stat("stat");
SOFTHCA_NEXT Next<int, const char*, struct stat*> next_lstat("lstat");
SOFTHCA_NEXT Next<int, int, struct stat*> next_fstat("fstat");
SOFTHCA_NEXT Next<int, int, const char*, struct stat*, int> next_fstatat("fstatat");
SOFTHCA_NEXT Next<int, int, const char*, int, unsigned, struct statx*> next_statx("statx");

}  // namespace

SOFTHCA_INTERPOSE(int, door_stat, "stat", (const char* path, struct stat* status)) {
  if (!may_concern(path)) return shown(next_stat(path, status), status);
  return with_name(path, [&](const Named& named) {
    return named.is_served() ? stat_served(named, status, 0)
                             : shown(next_stat(named.path(), status), status);
  });
}

SOFTHCA_INTERPOSE(int, door_lstat, "lstat", (const char* path, struct stat* status)) {
  if (!may_concern(path)) return next_lstat(path, status);
  return with_name(path, [&](const Named& named) {
    return named.is_served() ? stat_served(named, status, AT_SYMLINK_NOFOLLOW)
                             : next_lstat(named.path(), status);
  });
}

SOFTHCA_INTERPOSE(int, door_fstat, "fstat", (int fd, struct stat* status)) {
  return shown(next_fstat(fd, status), status);
}

SOFTHCA_INTERPOSE(int, door_fstatat, "fstatat",
                  (int directory, const char* path, struct stat* status, int flags)) {
  if (!may_concern(path)) return shown(next_fstatat(directory, path, status, flags), status);
  return with_name(directory, path, [&](const Named& named) {
    return named.is_served()
               ? stat_served(named, status, flags)
               : shown(next_fstatat(named.directory(), named.path(), status, flags), status);
  });
}

SOFTHCA_INTERPOSE_ALIAS(int, door_stat64, "stat64", (const char*, struct stat*), "stat");
SOFTHCA_INTERPOSE_ALIAS(int, door_lstat64, "lstat64", (const char*, struct stat*), "lstat");
SOFTHCA_INTERPOSE_ALIAS(int, door_fstat64, "fstat64", (int, struct stat*), "fstat");
SOFTHCA_INTERPOSE_ALIAS(int, door_fstatat64, "fstatat64", (int, const char*, struct stat*, int),
                        "fstatat");

SOFTHCA_INTERPOSE(int, door_statx, "statx",
                  (int directory, const char* path, int flags, unsigned mask,
                   struct statx* status)) {
  if (!may_concern(path)) return shown(next_statx(directory, path, flags, mask, status), status);
  return with_name(directory, path, [&](const Named& named) {
    const int follow = named.device_file() ? flags & ~AT_SYMLINK_NOFOLLOW : flags;
    const int result = next_statx(named.directory(), named.path(), follow, mask, status);
    if (result != 0) return result;
    if (named.device_file()) {
      show_device(number_of_device(*named.device_file()), *status);
      return result;
    }
    if (named.is_served() && S_ISREG(status->stx_mode)) {
      status->stx_size = kSysfsFileSize;
      status->stx_nlink = kSysfsLinks;
    }
    return shown(result, status);
  });
}

namespace {

int stat_by_name(int directory, const char* path, struct stat* status, int flags) {
  if (!may_concern(path)) return shown(ask_kernel(directory, path, status, flags), status);
  return with_name(directory, path, [&](const Named& named) {
    return named.is_served()
               ? stat_served(named, status, flags)
               : shown(ask_kernel(named.directory(), named.path(), status, flags), status);
  });
}

}  // namespace

// For programs linked before glibc 2.33 (kernel interface 2.9). Newer versions keep these names
// only for such programs, and dlsym does not find them.
SOFTHCA_INTERPOSE(int, door_xstat, "__xstat", (int, const char* path, struct stat* status)) {
  return stat_by_name(AT_FDCWD, path, status, 0);
}

SOFTHCA_INTERPOSE(int, door_lxstat, "__lxstat", (int, const char* path, struct stat* status)) {
  return stat_by_name(AT_FDCWD, path, status, AT_SYMLINK_NOFOLLOW);
}

SOFTHCA_INTERPOSE(int, door_fxstat, "__fxstat", (int, int fd, struct stat* status)) {
  return shown(static_cast<int>(::syscall(SYS_fstat, fd, status)), status);
}

SOFTHCA_INTERPOSE(int, door_fxstatat, "__fxstatat",
                  (int, int directory, const char* path, struct stat* status, int flags)) {
  return stat_by_name(directory, path, status, flags);
}

SOFTHCA_INTERPOSE_ALIAS(int, door_xstat64, "__xstat64", (int, const char*, struct stat*),
                        "__xstat");
SOFTHCA_INTERPOSE_ALIAS(int, door_lxstat64, "__lxstat64", (int, const char*, struct stat*),
                        "__lxstat");
SOFTHCA_INTERPOSE_ALIAS(int, door_fxstat64, "__fxstat64", (int, int, struct stat*), "__fxstat");
SOFTHCA_INTERPOSE_ALIAS(int, door_fxstatat64, "__fxstatat64",
                        (int, int, const char*, struct stat*, int), "__fxstatat");

}  // namespace softhca::door
