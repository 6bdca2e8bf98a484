// Other functions with file names. libc's own opendir, fopen and realpath do not call the open and
// readlink that programs see (kernel interface 2.9).
#include <dirent.h>
#include <fcntl.h>
#include <linux/limits.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "door/interpose/interpose.h"
#include "door/process/standard_error.h"
#include "door/tree/tree.h"

namespace softhca::door {
namespace {

using Filter = int (*)(const dirent*);
using Order = int (*)(const dirent**, const dirent**);

SOFTHCA_NEXT Next<FILE*, const char*, const char*> next_fopen("fopen");
SOFTHCA_NEXT Next<FILE*, const char*, const char*, FILE*> next_freopen("freopen");
SOFTHCA_NEXT Next<int, const char*, dirent***, Filter, Order> next_scandir("scandir");
SOFTHCA_NEXT Next<int, int, const char*, dirent***, Filter, Order> next_scandirat("scandirat");
SOFTHCA_NEXT Next<int, const char*, int> next_access("access");
SOFTHCA_NEXT Next<int, int, const char*, int, int> next_faccessat("faccessat");
SOFTHCA_NEXT Next<int, const char*, int> next_euidaccess("euidaccess");
SOFTHCA_NEXT Next<ssize_t, int, const char*, char*, std::size_t> next_readlinkat("readlinkat");
SOFTHCA_NEXT Next<ssize_t, const char*, char*, std::size_t> next_readlink("readlink");
SOFTHCA_NEXT Next<char*, const char*, char*> next_realpath("realpath");
SOFTHCA_NEXT Next<ssize_t, const char*, const char*, void*, std::size_t> next_getxattr("getxattr");
SOFTHCA_NEXT Next<ssize_t, const char*, const char*, void*, std::size_t> next_lgetxattr(
    "lgetxattr");
SOFTHCA_NEXT Next<ssize_t, const char*, char*, std::size_t> next_listxattr("listxattr");
SOFTHCA_NEXT Next<ssize_t, const char*, char*, std::size_t> next_llistxattr("llistxattr");

/// readlinkat() of `named` without the root, truncated to `size` as by the kernel.
ssize_t read_link(const Named& named, char* text, std::size_t size, const PathMap& paths) {
  if (named.device_file()) {
    // A device file is no link, although the tree uses one. If it is missing, keep the kernel's
    // errno.
    if (::syscall(SYS_faccessat, AT_FDCWD, named.path(), F_OK) == 0) errno = EINVAL;
    return -1;
  }
  PathBuffer target;
  const auto length =
      next_readlinkat(named.directory(), named.path(), target.data(), target.size());
  if (length < 0) return length;
  const auto stripped = paths.strip(target.data(), static_cast<std::size_t>(length));
  const auto given = std::min(stripped, size);
  std::memcpy(text, target.data(), given);
  return static_cast<ssize_t>(given);
}

/// `result`, a path, without the root.
char* stripped(char* result) {
  const auto* paths = named_paths();
  if (result == nullptr || paths == nullptr) return result;
  result[paths->strip(result, std::strlen(result))] = '\0';
  return result;
}

/// A device file's real path is its own name, although its link in the tree leads elsewhere.
char* real_path_of_device(const Named& named, char* resolved) {
  if (::syscall(SYS_faccessat, AT_FDCWD, named.path(), F_OK) != 0) return nullptr;
  if (resolved == nullptr) resolved = static_cast<char*>(std::malloc(PATH_MAX));
  if (resolved == nullptr) return nullptr;
  if (*named.device_file() == kRdmaCmFile) {
    std::snprintf(resolved, PATH_MAX, "/dev/infiniband/rdma_cm");
  } else {
    std::snprintf(resolved, PATH_MAX, "/dev/infiniband/uverbs%u", *named.device_file());
  }
  return resolved;
}

char* real_path(const char* path, char* resolved) {
  if (!may_concern(path)) return stripped(next_realpath(path, resolved));
  return with_name(path, [&](const Named& named) {
    return named.device_file() ? real_path_of_device(named, resolved)
                               : stripped(next_realpath(named.path(), resolved));
  });
}

/// readlinkat(): a target in the tree is returned without the root.
ssize_t read_link(int directory, const char* path, char* text, std::size_t size,
                  const PathMap& paths) {
  if (!may_concern(path)) {
    const auto length = next_readlinkat(directory, path, text, size);
    const auto begin =
        paths.root().substr(0, static_cast<std::size_t>(std::max<ssize_t>(length, 0)));
    if (length <= 0 || std::memcmp(text, begin.data(), begin.size()) != 0) return length;
  }
  return with_name(directory, path,
                   [&](const Named& named) { return read_link(named, text, size, paths); });
}

}  // namespace

namespace {

/// A mode for libc that never creates or truncates files of sysfs.
const char* mode_for(const Named& named, const char* mode) {
  return named.is_served() && mode[0] != 'r' ? "r+e" : mode;
}

bool reads_alone(const char* mode) {
  return mode != nullptr && mode[0] == 'r' && std::strchr(mode, '+') == nullptr;
}

/// Runs freopen() on the open file of `fd`, and closes `fd`.
FILE* reopen_by_descriptor(int fd, const char* mode, FILE* file) {
  std::array<char, 32> name{};
  std::snprintf(name.data(), name.size(), "/proc/self/fd/%d", fd);
  FILE* const reopened = next_freopen(name.data(), mode, file);
  ::close(fd);
  return reopened;
}

}  // namespace

SOFTHCA_INTERPOSE(FILE*, door_fopen, "fopen", (const char* path, const char* mode)) {
  if (!may_concern(path)) return next_fopen(path, mode);
  FILE* const file = with_name(path, [&](const Named& named) -> FILE* {
    const bool reads = reads_alone(mode);
    if (!reads && is_read_only(named)) {
      errno = EACCES;
      return nullptr;
    }
    const int flags = reads && std::strchr(mode, 'e') != nullptr ? O_CLOEXEC : 0;
    if (const int fd = reads ? open_live(named, flags) : kNotLive; fd != kNotLive) {
      return fd < 0 ? nullptr : ::fdopen(fd, mode);
    }
    return next_fopen(named.path(), mode_for(named, mode));
  });
  if (file == nullptr && errno == ENOENT) report_ended_run(path);
  return file;
}

SOFTHCA_INTERPOSE(FILE*, door_freopen, "freopen",
                  (const char* path, const char* mode, FILE* file)) {
  if (!may_concern(path)) {
    FILE* const reopened = next_freopen(path, mode, file);
    if (reopened != nullptr && ::fileno(reopened) == STDERR_FILENO) note_standard_error();
    return reopened;
  }
  return with_name(path, [&](const Named& named) {
    const bool reads = reads_alone(mode);
    if (!reads && is_read_only(named)) {
      ::fclose(file);  // freopen(3) closes it in any case
      errno = EACCES;
      return static_cast<FILE*>(nullptr);
    }
    const int fd = reads ? open_live(named, 0) : kNotLive;
    if (fd == kNotLive) return next_freopen(named.path(), mode_for(named, mode), file);
    return fd < 0 ? nullptr : reopen_by_descriptor(fd, mode, file);
  });
}

SOFTHCA_INTERPOSE(int, door_scandir, "scandir",
                  (const char* path, dirent*** names, Filter filter, Order order)) {
  return with_served_name(
      path, [&](const char* name) { return next_scandir(name, names, filter, order); });
}

SOFTHCA_INTERPOSE(int, door_scandirat, "scandirat",
                  (int directory, const char* path, dirent*** names, Filter filter, Order order)) {
  return with_served_name(directory, path, [&](int at, const char* name) {
    return next_scandirat(at, name, names, filter, order);
  });
}

SOFTHCA_INTERPOSE(int, door_access, "access", (const char* path, int mode)) {
  return with_served_name(path, [&](const char* name) { return next_access(name, mode); });
}

SOFTHCA_INTERPOSE(int, door_euidaccess, "euidaccess", (const char* path, int mode)) {
  return with_served_name(path, [&](const char* name) { return next_euidaccess(name, mode); });
}

SOFTHCA_INTERPOSE(int, door_faccessat, "faccessat",
                  (int directory, const char* path, int mode, int flags)) {
  if (!may_concern(path)) return next_faccessat(directory, path, mode, flags);
  return with_name(directory, path, [&](const Named& named) {
    const int follow = named.device_file() ? flags & ~AT_SYMLINK_NOFOLLOW : flags;
    return next_faccessat(named.directory(), named.path(), mode, follow);
  });
}

SOFTHCA_INTERPOSE(ssize_t, door_readlink, "readlink",
                  (const char* path, char* text, std::size_t size)) {
  const auto* paths = named_paths();
  if (paths == nullptr || size == 0 || path == nullptr) return next_readlink(path, text, size);
  return read_link(AT_FDCWD, path, text, size, *paths);
}

SOFTHCA_INTERPOSE(ssize_t, door_readlinkat, "readlinkat",
                  (int directory, const char* path, char* text, std::size_t size)) {
  const auto* paths = named_paths();
  if (paths == nullptr || size == 0) return next_readlinkat(directory, path, text, size);
  return read_link(directory, path, text, size, *paths);
}

SOFTHCA_INTERPOSE(char*, door_realpath, "realpath", (const char* path, char* resolved)) {
  return real_path(path, resolved);
}

SOFTHCA_INTERPOSE(char*, door_canonicalize_file_name, "canonicalize_file_name",
                  (const char* path)) {
  return real_path(path, nullptr);
}

// For programs compiled with _FORTIFY_SOURCE: libc aborts if the buffer is too short.
SOFTHCA_INTERPOSE(char*, door_realpath_chk, "__realpath_chk",
                  (const char* path, char* resolved, std::size_t room)) {
  static SOFTHCA_NEXT Next<char*, const char*, char*, std::size_t> next("__realpath_chk");
  if (!may_concern(path)) return stripped(next(path, resolved, room));
  return with_name(path, [&](const Named& named) {
    return named.device_file() && room >= PATH_MAX ? real_path_of_device(named, resolved)
                                                   : stripped(next(named.path(), resolved, room));
  });
}

SOFTHCA_INTERPOSE(ssize_t, door_readlink_chk, "__readlink_chk",
                  (const char* path, char* text, std::size_t size, std::size_t room)) {
  static SOFTHCA_NEXT Next<ssize_t, const char*, char*, std::size_t, std::size_t> next(
      "__readlink_chk");
  const auto* paths = named_paths();
  if (paths == nullptr || size == 0 || size > room) return next(path, text, size, room);
  return read_link(AT_FDCWD, path, text, size, *paths);
}

SOFTHCA_INTERPOSE(ssize_t, door_readlinkat_chk, "__readlinkat_chk",
                  (int directory, const char* path, char* text, std::size_t size,
                   std::size_t room)) {
  static SOFTHCA_NEXT Next<ssize_t, int, const char*, char*, std::size_t, std::size_t> next(
      "__readlinkat_chk");
  const auto* paths = named_paths();
  if (paths == nullptr || size == 0 || size > room) return next(directory, path, text, size, room);
  return read_link(directory, path, text, size, *paths);
}

// `ls -l` reads extended attributes, and reports an error if the file is missing.
SOFTHCA_INTERPOSE(ssize_t, door_getxattr, "getxattr",
                  (const char* path, const char* name, void* value, std::size_t size)) {
  return with_served_name(
      path, [&](const char* served) { return next_getxattr(served, name, value, size); });
}

SOFTHCA_INTERPOSE(ssize_t, door_lgetxattr, "lgetxattr",
                  (const char* path, const char* name, void* value, std::size_t size)) {
  return with_served_name(
      path, [&](const char* served) { return next_lgetxattr(served, name, value, size); });
}

SOFTHCA_INTERPOSE(ssize_t, door_listxattr, "listxattr",
                  (const char* path, char* list, std::size_t size)) {
  return with_served_name(path,
                          [&](const char* served) { return next_listxattr(served, list, size); });
}

SOFTHCA_INTERPOSE(ssize_t, door_llistxattr, "llistxattr",
                  (const char* path, char* list, std::size_t size)) {
  return with_served_name(path,
                          [&](const char* served) { return next_llistxattr(served, list, size); });
}

SOFTHCA_INTERPOSE_ALIAS(FILE*, door_fopen64, "fopen64", (const char*, const char*), "fopen");
SOFTHCA_INTERPOSE_ALIAS(FILE*, door_freopen64, "freopen64", (const char*, const char*, FILE*),
                        "freopen");
SOFTHCA_INTERPOSE_ALIAS(int, door_scandir64, "scandir64", (const char*, dirent***, Filter, Order),
                        "scandir");
SOFTHCA_INTERPOSE_ALIAS(int, door_scandirat64, "scandirat64",
                        (int, const char*, dirent***, Filter, Order), "scandirat");
SOFTHCA_INTERPOSE_ALIAS(int, door_eaccess, "eaccess", (const char*, int), "euidaccess");

}  // namespace softhca::door
