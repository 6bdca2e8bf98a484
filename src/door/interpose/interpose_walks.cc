// libc functions that walk directories by themselves. They start in the tree, and results are
// returned without its root.
#include <ftw.h>
#include <glob.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "door/interpose/interpose.h"
#include "door/process/descriptors.h"

extern "C" ssize_t door_write(int fd, const void* bytes, std::size_t size) asm("write");

namespace softhca::door {
namespace {

using Step = int (*)(const char*, const struct stat*, int);
using StepWithPlace = int (*)(const char*, const struct stat*, int, struct FTW*);
using GlobError = int (*)(const char*, int);

SOFTHCA_NEXT Next<int, const char*, Step, int> next_ftw("ftw");
SOFTHCA_NEXT Next<int, const char*, StepWithPlace, int, int> next_nftw("nftw");
SOFTHCA_NEXT Next<int, const char*, int, GlobError, glob_t*> next_glob("glob");
SOFTHCA_NEXT Next<int, const char*, struct statfs*> next_statfs("statfs");
SOFTHCA_NEXT Next<int, int, struct statfs*> next_fstatfs("fstatfs");
SOFTHCA_NEXT Next<int, const char*, struct statvfs*> next_statvfs("statvfs");
SOFTHCA_NEXT Next<ssize_t, int, const iovec*, int> next_writev("writev");

/// The callbacks of the program for this thread's walk.
struct Walk {
  Step step = nullptr;
  StepWithPlace step_with_place = nullptr;
};
constinit thread_local Walk walk;

class InWalk {
 public:
  explicit InWalk(const Walk& wanted) : before_(walk) { walk = wanted; }
  ~InWalk() { walk = before_; }
  InWalk(const InWalk&) = delete;
  InWalk& operator=(const InWalk&) = delete;

 private:
  Walk before_;
};

/// Copies `path` without the root to `text`. Returns by how much it became shorter.
std::size_t strip(const char* path, PathBuffer& text) {
  const auto* paths = named_paths();
  const auto size = std::min(std::strlen(path), text.size() - 1);
  std::memcpy(text.data(), path, size);
  const auto left = paths == nullptr ? size : paths->strip(text.data(), size);
  text[left] = '\0';
  return size - left;
}

int step(const char* path, const struct stat* status, int kind) {
  PathBuffer text;
  (void)strip(path, text);
  return walk.step(text.data(), status, kind);
}

int step_with_place(const char* path, const struct stat* status, int kind, struct FTW* place) {
  PathBuffer text;
  struct FTW its = *place;
  its.base -= static_cast<int>(strip(path, text));
  return walk.step_with_place(text.data(), status, kind, &its);
}

/// Whether the path, which libc sees, is a sysfs file of the tree.
bool is_of_sysfs(std::string_view path) {
  const auto* paths = named_paths();
  if (paths == nullptr || !path.starts_with(paths->root())) return false;
  return path.substr(paths->root().size()).starts_with("/sys");
}
[[gnu::noinline]] bool is_of_sysfs(int fd) {
  if (named_paths() == nullptr) return false;
  const int before = errno;
  PathBuffer text;
  const auto size = path_of_descriptor(fd, text);
  errno = before;
  return is_of_sysfs(std::string_view(text.data(), size));
}

}  // namespace

SOFTHCA_INTERPOSE(int, door_ftw, "ftw", (const char* path, Step wanted, int descriptors)) {
  if (!may_concern(path)) return next_ftw(path, wanted, descriptors);
  return with_name(path, [&](const Named& named) {
    if (!named.is_served()) return next_ftw(named.path(), wanted, descriptors);
    const InWalk in_walk({.step = wanted});
    return next_ftw(named.path(), step, descriptors);
  });
}

SOFTHCA_INTERPOSE(int, door_nftw, "nftw",
                  (const char* path, StepWithPlace wanted, int descriptors, int flags)) {
  if (!may_concern(path)) return next_nftw(path, wanted, descriptors, flags);
  return with_name(path, [&](const Named& named) {
    if (!named.is_served()) return next_nftw(named.path(), wanted, descriptors, flags);
    const InWalk in_walk({.step_with_place = wanted});
    return next_nftw(named.path(), step_with_place, descriptors, flags);
  });
}

SOFTHCA_INTERPOSE(int, door_glob, "glob",
                  (const char* pattern, int flags, GlobError on_error, glob_t* found)) {
  const Named named(pattern);
  const int result = next_glob(named.path(), flags, on_error, found);
  const auto* paths = named_paths();
  if (!named.is_served() || paths == nullptr || result != 0) return result;
  const auto first = (flags & GLOB_DOOFFS) != 0 ? found->gl_offs : 0;
  for (std::size_t i = first; i != first + found->gl_pathc; ++i) {
    char* const path = found->gl_pathv[i];
    path[paths->strip(path, std::strlen(path))] = '\0';
  }
  return result;
}

SOFTHCA_INTERPOSE(int, door_statfs, "statfs", (const char* path, struct statfs* status)) {
  if (!may_concern(path)) return next_statfs(path, status);
  return with_name(path, [&](const Named& named) {
    const int result = next_statfs(named.path(), status);
    if (result == 0 && is_of_sysfs(named.path())) status->f_type = SYSFS_MAGIC;
    return result;
  });
}

SOFTHCA_INTERPOSE(int, door_fstatfs, "fstatfs", (int fd, struct statfs* status)) {
  const int result = next_fstatfs(fd, status);
  if (result == 0 && status->f_type != SYSFS_MAGIC && is_of_sysfs(fd)) {
    status->f_type = SYSFS_MAGIC;
  }
  return result;
}

SOFTHCA_INTERPOSE(int, door_statvfs, "statvfs", (const char* path, struct statvfs* status)) {
  return with_served_name(path, [&](const char* name) { return next_statvfs(name, status); });
}

namespace {

/// Whether `fd` is a device at present: the program may have replaced the descriptor.
bool is_device(int fd) {
  struct stat status{};
  return Descriptors::may_be_ours(fd) && ::syscall(SYS_fstat, fd, &status) == 0 &&
         device_number(status.st_mode, status.st_nlink, status.st_dev, status.st_ino) != 0;
}

}  // namespace

// The kernel passes the parts to a device one by one, and to other files together.
SOFTHCA_INTERPOSE(ssize_t, door_writev, "writev", (int fd, const iovec* pieces, int count)) {
  if (count < 1 || !is_device(fd)) return next_writev(fd, pieces, count);
  ssize_t written = 0;
  for (int i = 0; i != count; ++i) {
    const auto one = door_write(fd, pieces[i].iov_base, pieces[i].iov_len);
    if (one < 0) return written != 0 ? written : one;
    written += one;
  }
  return written;
}

SOFTHCA_INTERPOSE_ALIAS(int, door_ftw64, "ftw64", (const char*, Step, int), "ftw");
SOFTHCA_INTERPOSE_ALIAS(int, door_nftw64, "nftw64", (const char*, StepWithPlace, int, int), "nftw");
SOFTHCA_INTERPOSE_ALIAS(int, door_glob64, "glob64", (const char*, int, GlobError, glob_t*), "glob");
SOFTHCA_INTERPOSE_ALIAS(int, door_statfs64, "statfs64", (const char*, struct statfs*), "statfs");
SOFTHCA_INTERPOSE_ALIAS(int, door_fstatfs64, "fstatfs64", (int, struct statfs*), "fstatfs");
SOFTHCA_INTERPOSE_ALIAS(int, door_statvfs64, "statvfs64", (const char*, struct statvfs*),
                        "statvfs");

}  // namespace softhca::door
