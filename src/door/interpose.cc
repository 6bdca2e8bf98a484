#include "door/interpose.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <charconv>
#include <cstdarg>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "door/kernel.h"
#include "door/tree/tree.h"

namespace softhca::door {
namespace {

/// RDMA_VERBS_IOCTL of the kernel's include/uapi/rdma/rdma_user_ioctl_cmds.h.
constexpr std::uint32_t kVerbsIoctl = 0xc0181b01;

enum class Wanted { kUnknown, kBeingDecided, kNo, kYes };

constinit std::atomic<Wanted> wanted = Wanted::kUnknown;
constinit PathMap paths;

/// Initial-exec: the general way to a thread's variables may allocate.
[[gnu::tls_model("initial-exec")]] constinit thread_local bool own_calls = false;

class KeepErrno {
 public:
  KeepErrno() : before_(errno) {}
  ~KeepErrno() { errno = before_; }
  KeepErrno(const KeepErrno&) = delete;
  KeepErrno& operator=(const KeepErrno&) = delete;

 private:
  int before_;
};

/// `text` behind the `size` bytes of `buffer`, with an end mark; false if there is no room.
bool append(PathBuffer& buffer, std::size_t& size, std::string_view text) {
  if (text.size() >= buffer.size() - size) return false;
  text.copy(&buffer[size], text.size());
  size += text.size();
  buffer[size] = '\0';
  return true;
}

/// $SOFTHCA_DOOR/root, or that of other devices (root-2), without links. False if there is none.
bool find_root() {
  const char* door = std::getenv("SOFTHCA_DOOR");
  PathBuffer text;
  std::size_t size = 0;
  if (door == nullptr || door[0] != '/' || !append(text, size, door)) return false;
  if (!append(text, size, "/root")) return false;
  if (const char* devices = std::getenv(kDevicesVariable); devices != nullptr) {
    const auto numbers = parse_device_numbers(devices);
    if (!numbers || !append(text, size, "-") || !append(text, size, devices)) return false;
    paths.set_first(numbers->first);
  }
  constexpr int kFlags = O_PATH | O_DIRECTORY | O_CLOEXEC;
  const auto fd = static_cast<int>(::syscall(SYS_openat, AT_FDCWD, text.data(), kFlags));
  if (fd < 0) return false;
  size = path_of_descriptor(fd, text);
  ::syscall(SYS_close, fd);
  return paths.set_root({text.data(), size});
}

const PathMap* decide() {
  // Before libc has an environment nothing can be decided.
  if (environ == nullptr) return nullptr;
  auto unknown = Wanted::kUnknown;
  if (!wanted.compare_exchange_strong(unknown, Wanted::kBeingDecided)) return nullptr;
  const KeepErrno keep;
  const bool yes = find_root();
  wanted.store(yes ? Wanted::kYes : Wanted::kNo, std::memory_order_release);
  return yes ? &paths : nullptr;
}

/// A program may change its environment later.
[[gnu::constructor]] void decide_at_start() { wanted_paths(); }

}  // namespace

const PathMap* wanted_paths() {
  const auto now = wanted.load(std::memory_order_acquire);
  if (now == Wanted::kNo || own_calls) return nullptr;
  return now == Wanted::kYes ? &paths : decide();
}

OwnCalls::OwnCalls() : before_(own_calls) { own_calls = true; }
OwnCalls::~OwnCalls() { own_calls = before_; }
bool OwnCalls::exist() { return own_calls; }

std::size_t path_of_descriptor(int fd, PathBuffer& text) {
  constexpr std::string_view kDirectory = "/proc/self/fd/";
  std::array<char, 32> name{};
  kDirectory.copy(name.data(), kDirectory.size());
  std::to_chars(name.data() + kDirectory.size(), name.data() + name.size() - 1, fd);
  const auto size = ::syscall(SYS_readlinkat, AT_FDCWD, name.data(), text.data(), text.size() - 1);
  if (size <= 0) return 0;
  text[static_cast<std::size_t>(size)] = '\0';
  return static_cast<std::size_t>(size);
}

Named::Named(int directory, const char* path) : directory_(directory), path_(path) {
  const auto* wanted_map = wanted_paths();
  if (wanted_map != nullptr && path != nullptr && may_be_served(path)) serve(*wanted_map);
}

Named::Named(const char* path) : Named(AT_FDCWD, path) {}

void Named::serve(const PathMap& map) {
  const KeepErrno keep;
  std::size_t size = 0;
  if (path_[0] == '/') {
    size = map.serve(path_, served_);
  } else {
    PathBuffer base;
    const bool known = directory_ == AT_FDCWD ? ::syscall(SYS_getcwd, base.data(), base.size()) > 0
                                              : path_of_descriptor(directory_, base) != 0;
    if (known) size = map.serve(base.data(), path_, served_);
  }
  if (size == 0) return;
  device_file_ = map.device_file({served_.data(), size});
  directory_ = AT_FDCWD;
  path_ = served_.data();
}

std::uint64_t device_number(mode_t mode, std::uint64_t links, dev_t device, ino_t inode) {
  const bool channel = S_ISFIFO(mode) && has_channels();
  if (!channel && (!S_ISREG(mode) || links != 0)) return 0;
  if (wanted_paths() == nullptr) return 0;
  const KeepErrno keep;
  const OwnCalls own;
  return channel ? device_of_channel(device, inode) : device_of(device, inode);
}

namespace {

constinit Next<int, const char*, int, mode_t> next_open("open");
constinit Next<int, int, const char*, int, mode_t> next_openat("openat");
constinit Next<int, int, unsigned long, void*> next_ioctl("ioctl");
constinit Next<ssize_t, int, const void*, std::size_t> next_write("write");

/// As of a function of the kernel: what is negative becomes errno.
int answer(int result) {
  if (result >= 0) return result;
  errno = -result;
  return -1;
}

/// Opens the device file, if it is there and the flags do not ask for something else.
int open_device(const Named& named, int flags) {
  if (::syscall(SYS_faccessat, AT_FDCWD, named.path(), F_OK) != 0) return -1;
  if ((flags & O_DIRECTORY) != 0) return answer(-ENOTDIR);
  if ((flags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL)) return answer(-EEXIST);
  int result;
  {
    const KeepErrno keep;
    const OwnCalls own;
    const auto file = *named.device_file();
    result = file == kRdmaCmFile ? open_rdma_cm() : open_uverbs(file, flags);
  }
  return answer(result);
}

/// `named` is served. Nothing is created in sysfs.
int open_served(const Named& named, int flags) {
  if (named.device_file() && (flags & O_PATH) != O_PATH) return open_device(named, flags);
  return next_openat(named.directory(), named.path(), flags & ~(O_CREAT | O_TRUNC), 0);
}

bool has_mode(int flags) { return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE; }

mode_t mode_of(int flags, va_list& rest) { return has_mode(flags) ? va_arg(rest, mode_t) : 0; }

}  // namespace

SOFTHCA_INTERPOSE(int, door_open, "open", (const char* path, int flags, ...)) {
  va_list rest;
  va_start(rest, flags);
  const auto mode = mode_of(flags, rest);
  va_end(rest);
  const Named named(path);
  return named.is_served() ? open_served(named, flags) : next_open(path, flags, mode);
}

SOFTHCA_INTERPOSE(int, door_openat, "openat", (int directory, const char* path, int flags, ...)) {
  va_list rest;
  va_start(rest, flags);
  const auto mode = mode_of(flags, rest);
  va_end(rest);
  const Named named(directory, path);
  if (named.is_served()) return open_served(named, flags);
  return next_openat(directory, path, flags, mode);
}

// Of programs that were compiled with _FORTIFY_SOURCE. libc ends those that create without a mode.
SOFTHCA_INTERPOSE(int, door_open_2, "__open_2", (const char* path, int flags)) {
  static constinit Next<int, const char*, int> next("__open_2");
  const Named named(path);
  return named.is_served() ? open_served(named, flags) : next(path, flags);
}

SOFTHCA_INTERPOSE(int, door_openat_2, "__openat_2", (int directory, const char* path, int flags)) {
  static constinit Next<int, int, const char*, int> next("__openat_2");
  const Named named(directory, path);
  return named.is_served() ? open_served(named, flags) : next(directory, path, flags);
}

SOFTHCA_INTERPOSE_ALIAS(int, door_open64, "open64", (const char*, int, ...), "open");
SOFTHCA_INTERPOSE_ALIAS(int, door_openat64, "openat64", (int, const char*, int, ...), "openat");
SOFTHCA_INTERPOSE_ALIAS(int, door_open64_2, "__open64_2", (const char*, int), "__open_2");
SOFTHCA_INTERPOSE_ALIAS(int, door_openat64_2, "__openat64_2", (int, const char*, int),
                        "__openat_2");

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
    if (served) return answer(result);
  }
  return next_ioctl(fd, request, argument);
}

// The commands of rdma_cm are writes. In programs that do not use it this is one look at a flag.
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
    if (served && result >= 0) return result;
    if (served) return answer(static_cast<int>(result));
  }
  return next_write(fd, bytes, size);
}

}  // namespace softhca::door
