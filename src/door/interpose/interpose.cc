#include "door/interpose/interpose.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <charconv>
#include <cstdarg>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>

#include "door/kernel.h"
#include "door/memory/fault_guard.h"
#include "door/process/descriptors.h"
#include "door/process/without_exceptions.h"
#include "door/tree/own_directory.h"
#include "door/tree/tree.h"
#include "util/log.h"

namespace softhca::door {
namespace {

enum class Wanted { kUnknown, kBeingDecided, kNo, kYes };

constinit std::atomic<Wanted> tree_wanted = Wanted::kUnknown;
constinit PathMap tree_paths;

class KeepErrno {
 public:
  KeepErrno() : before_(errno) {}
  ~KeepErrno() { errno = before_; }
  KeepErrno(const KeepErrno&) = delete;
  KeepErrno& operator=(const KeepErrno&) = delete;

 private:
  int before_;
};

/// Appends `text` to the `size` bytes of `buffer`, null-terminated. False if there is no room.
bool append(PathBuffer& buffer, std::size_t& size, std::string_view text) {
  if (text.size() >= buffer.size() - size) return false;
  text.copy(&buffer[size], text.size());
  size += text.size();
  buffer[size] = '\0';
  return true;
}

/// Sets $SOFTHCA_DOOR/root, or the root for other numbers of devices (root-2), with links resolved.
/// False: there is none.
bool find_root() {
  const char* door = std::getenv("SOFTHCA_DOOR");
  PathBuffer text;
  std::size_t size = 0;
  if (door == nullptr || door[0] != '/' || !append(text, size, "root")) return false;
  if (const char* devices = std::getenv(kDevicesVariable); devices != nullptr) {
    const auto numbers = parse_device_numbers(devices);
    if (!numbers || !append(text, size, "-") || !append(text, size, devices)) return false;
    tree_paths.set_first(numbers->first);
  }
  // The run may have ended, and another user may have made a directory of that name.
  const int run = open_own_directory(door);
  if (run < 0) return false;
  constexpr int kFlags = O_PATH | O_DIRECTORY | O_CLOEXEC;
  const auto fd = static_cast<int>(::syscall(SYS_openat, run, text.data(), kFlags));
  ::syscall(SYS_close, run);
  if (fd < 0) return false;
  size = path_of_descriptor(fd, text);
  ::syscall(SYS_close, fd);
  return tree_paths.set_root({text.data(), size});
}

const PathMap* decide() {
  // libc has no environment yet, so nothing can be decided.
  if (environ == nullptr) return nullptr;
  auto unknown = Wanted::kUnknown;
  if (!tree_wanted.compare_exchange_strong(unknown, Wanted::kBeingDecided)) return nullptr;
  const KeepErrno keep;
  const bool yes = find_root();
  if (yes) note_directory();
  tree_wanted.store(yes ? Wanted::kYes : Wanted::kNo, std::memory_order_release);
  return yes ? &tree_paths : nullptr;
}

/// Decides at start, since the program may change its environment later.
[[gnu::constructor]] void decide_at_start() { wanted_paths(); }

/// The bounds of all objects declared with SOFTHCA_NEXT: the linker names the ends of their
/// section.
extern "C" [[gnu::visibility("hidden")]] NextSymbol first_symbol asm("__start_softhca_next");
extern "C" [[gnu::visibility("hidden")]] NextSymbol last_symbol asm("__stop_softhca_next");

[[gnu::constructor]] void look_up_symbols() {
  for (auto* symbol = &first_symbol; symbol != &last_symbol; ++symbol) (void)symbol->find();
  // A symbol that libc lacks must not show up in the program's dlerror().
  (void)::dlerror();
}

}  // namespace

const PathMap* wanted_paths() { return OwnCalls::exist() ? nullptr : named_paths(); }

const PathMap* named_paths() {
  const auto now = tree_wanted.load(std::memory_order_acquire);
  if (now == Wanted::kNo) return nullptr;
  return now == Wanted::kYes ? &tree_paths : decide();
}

void* NextSymbol::look_up() {
  const KeepErrno keep;
  auto* const found = ::dlsym(RTLD_NEXT, name_);
  found_.store(found, std::memory_order_relaxed);
  return found;
}

constinit std::atomic<bool> works_in_tree = false;

namespace {

/// Nothing: `text` is too short for the name of the working directory.
std::optional<bool> is_in_tree(std::span<char> text) {
  const bool known = ::syscall(SYS_getcwd, text.data(), text.size()) > 0;
  if (!known && errno == ERANGE) return std::nullopt;
  return known && std::string_view(text.data()).starts_with(tree_paths.root());
}

[[gnu::noinline]] bool is_in_tree() {
  PathBuffer text;
  return is_in_tree(text).value_or(false);
}

}  // namespace

void note_directory() {
  const KeepErrno keep;
  std::array<char, 256> text;
  const auto shortly = is_in_tree(text);
  works_in_tree = shortly ? *shortly : is_in_tree();
}

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
  const auto* map = named_paths();
  if (map == nullptr || path == nullptr) return;
  if (may_be_served(path) || (directory == AT_FDCWD && is_near(path))) serve(*map);
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
  is_served_ = std::string_view(served_.data(), size).starts_with(map.root());
  if (is_served_) device_file_ = map.device_file({served_.data(), size});
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

SOFTHCA_NEXT Next<int, const char*, int, mode_t> next_open("open");
SOFTHCA_NEXT Next<int, int, const char*, int, mode_t> next_openat("openat");

/// Converts a kernel-style result: a negative one goes to errno.
int answer(int result) {
  if (result >= 0) return result;
  errno = -result;
  return -1;
}

/// Opens the device file, if it exists and the flags allow that.
int open_device(const Named& named, int flags) {
  if (::syscall(SYS_faccessat, AT_FDCWD, named.path(), F_OK) != 0) return -1;
  if ((flags & O_DIRECTORY) != 0) return answer(-ENOTDIR);
  if ((flags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL)) return answer(-EEXIST);
  // A signal handler has interrupted the door, and must not wait for the locks of its own thread.
  if (OwnCalls::exist()) return answer(-EBUSY);
  int result;
  {
    const KeepErrno keep;
    const OwnCalls own;
    const CancelGuard guard;
    const auto file = *named.device_file();
    result = file == kRdmaCmFile ? open_rdma_cm() : open_uverbs(file, flags);
    if (result >= 0) Descriptors::note(result);
  }
  return answer(result);
}

}  // namespace

void report_ended_run(const char* path) {
  constexpr const char* kClasses = "/sys/class/infiniband";
  static std::atomic<bool> has_warned = false;
  const char* const door = std::getenv("SOFTHCA_DOOR");
  // A path below the tree's root matters too: answers to NETLINK_RDMA are read there.
  if (door == nullptr || path == nullptr || std::strstr(path, kClasses) == nullptr) return;
  const KeepErrno keep;
  const OwnCalls own;
  const CancelGuard guard;
  const int fd = open_own_directory(door);
  if (fd >= 0) {
    ::syscall(SYS_close, fd);
    const char* const devices = std::getenv(kDevicesVariable);
    if (devices == nullptr || parse_device_numbers(devices) || has_warned.exchange(true)) return;
    (void)without_exceptions([devices] {
      util::log(util::LogLevel::kWarning,
                "{}={}: want what softhca run has set, so the program finds no devices",
                kDevicesVariable, devices);
      return 0;
    });
    return;
  }
  const bool is_gone = errno == ENOENT;
  if ((!is_gone && errno != EACCES) || has_warned.exchange(true)) return;
  (void)without_exceptions([&] {
    if (is_gone) {
      util::log(util::LogLevel::kWarning,
                "the run of this program has ended ({} is gone), so the program finds no devices",
                door);
    } else {
      util::log(util::LogLevel::kWarning,
                "{}: the run of this program is another user's, so the program finds no devices. "
                "Start it with softhca run as this user",
                door);
    }
    return 0;
  });
}

bool is_read_only(const Named& named) {
  if (!named.is_served() || named.device_file()) return false;
  struct stat status{};
  const KeepErrno keep;
  return ::syscall(SYS_newfstatat, AT_FDCWD, named.path(), &status, 0) == 0 &&
         S_ISREG(status.st_mode);
}

int open_live(const Named& named, int flags) {
  const auto* map = named_paths();
  // A signal handler that has interrupted the door gets the file of the tree.
  if (map == nullptr || !named.is_served() || OwnCalls::exist()) return kNotLive;
  int result = 0;
  const std::string_view path(named.path());
  {
    const KeepErrno keep;
    const OwnCalls own;
    const CancelGuard guard;
    if (!open_live_file(path.substr(map->root().size()), result)) return kNotLive;
    if (result >= 0 && (flags & O_CLOEXEC) != 0) ::fcntl(result, F_SETFD, FD_CLOEXEC);
  }
  return answer(result);
}

namespace {

/// Opens a served file. As in sysfs, nothing is created or written.
int open_served(const Named& named, int flags) {
  // open() is a cancellation point; the door's own work in it must not be one.
  ::pthread_testcancel();
  const bool opens = (flags & O_PATH) != O_PATH;
  if (named.device_file() && opens) return open_device(named, flags);
  const bool reads = (flags & O_ACCMODE) == O_RDONLY;
  if (opens && !reads && is_read_only(named)) return answer(-EACCES);
  if ((flags & (O_PATH | O_DIRECTORY)) == 0 && reads) {
    if (const int fd = open_live(named, flags); fd != kNotLive) return fd;
  }
  return next_openat(named.directory(), named.path(), flags & ~(O_CREAT | O_TRUNC), 0);
}

/// Passes on `fd`, the result of open() of `path`.
int report_end(const char* path, int fd) {
  if (fd < 0 && errno == ENOENT) report_ended_run(path);
  return fd;
}

bool has_mode(int flags) { return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE; }

mode_t mode_of(int flags, va_list& rest) { return has_mode(flags) ? va_arg(rest, mode_t) : 0; }

}  // namespace

SOFTHCA_INTERPOSE(int, door_open, "open", (const char* path, int flags, ...)) {
  va_list rest;
  va_start(rest, flags);
  const auto mode = mode_of(flags, rest);
  va_end(rest);
  if (!may_concern(path)) return next_open(path, flags, mode);
  return report_end(path, with_name(path, [&](const Named& named) {
                      return named.is_served() ? open_served(named, flags)
                                               : next_open(named.path(), flags, mode);
                    }));
}

SOFTHCA_INTERPOSE(int, door_openat, "openat", (int directory, const char* path, int flags, ...)) {
  va_list rest;
  va_start(rest, flags);
  const auto mode = mode_of(flags, rest);
  va_end(rest);
  if (!may_concern(path)) return next_openat(directory, path, flags, mode);
  return report_end(path, with_name(directory, path, [&](const Named& named) {
                      return named.is_served()
                                 ? open_served(named, flags)
                                 : next_openat(named.directory(), named.path(), flags, mode);
                    }));
}

// For programs compiled with _FORTIFY_SOURCE: libc aborts if O_CREAT has no mode.
SOFTHCA_INTERPOSE(int, door_open_2, "__open_2", (const char* path, int flags)) {
  static SOFTHCA_NEXT Next<int, const char*, int> next("__open_2");
  if (!may_concern(path)) return next(path, flags);
  return report_end(path, with_name(path, [&](const Named& named) {
                      return named.is_served() ? open_served(named, flags)
                                               : next(named.path(), flags);
                    }));
}

SOFTHCA_INTERPOSE(int, door_openat_2, "__openat_2", (int directory, const char* path, int flags)) {
  static SOFTHCA_NEXT Next<int, int, const char*, int> next("__openat_2");
  if (!may_concern(path)) return next(directory, path, flags);
  return report_end(path, with_name(directory, path, [&](const Named& named) {
                      return named.is_served() ? open_served(named, flags)
                                               : next(named.directory(), named.path(), flags);
                    }));
}

SOFTHCA_INTERPOSE_ALIAS(int, door_open64, "open64", (const char*, int, ...), "open");
SOFTHCA_INTERPOSE_ALIAS(int, door_openat64, "openat64", (int, const char*, int, ...), "openat");
SOFTHCA_INTERPOSE_ALIAS(int, door_open64_2, "__open64_2", (const char*, int), "__open_2");
SOFTHCA_INTERPOSE_ALIAS(int, door_openat64_2, "__openat64_2", (int, const char*, int),
                        "__openat_2");

SOFTHCA_INTERPOSE(int, door_creat, "creat", (const char* path, mode_t mode)) {
  SOFTHCA_NEXT static Next<int, const char*, mode_t> next("creat");
  if (!may_concern(path)) return next(path, mode);
  return with_name(path, [&](const Named& named) {
    return named.is_served() ? open_served(named, O_WRONLY | O_CREAT | O_TRUNC)
                             : next(named.path(), mode);
  });
}

SOFTHCA_INTERPOSE_ALIAS(int, door_creat64, "creat64", (const char*, mode_t), "creat");

}  // namespace softhca::door
