// Helpers of the functions that interpose libc's (kernel interface 2.9). Every program under
// `softhca run` calls these functions. So each decides within a few instructions whether a call
// concerns the library, keeps errno, and allocates nothing.
#pragma once

#include <fcntl.h>
#include <sys/types.h>

#include <atomic>
#include <cerrno>
#include <optional>

#include "door/process/own_calls.h"
#include "door/tree/paths.h"

/// Interposes a function of libc: SOFTHCA_INTERPOSE(int, door_open, "open", (...)) { }
#define SOFTHCA_INTERPOSE(result, name, symbol, parameters)                     \
  extern "C" [[gnu::visibility("default")]] result name parameters asm(symbol); \
  extern "C" result name parameters

/// The same function under another symbol of libc.
#define SOFTHCA_INTERPOSE_ALIAS(result, name, symbol, parameters, of) \
  extern "C" [[gnu::visibility("default"), gnu::alias(of)]] result name parameters asm(symbol)

namespace softhca::door {

/// The path map, or null if the door is not enabled: calls must then pass unchanged. The door is
/// enabled if SOFTHCA_DOOR names a directory when the program starts. Null also in the door's own
/// calls (OwnCalls).
const PathMap* wanted_paths();
/// The same for calls with file names, and not null in own calls. The door itself names no file
/// that it serves, except below the tree's root. So such a name comes from a signal handler that
/// has interrupted the door, and gets the file of the tree, for which no lock is needed.
const PathMap* named_paths();

/// For a Next: it is resolved when the library is loaded, so that no call waits for ld.so. A call
/// in a signal handler or a forked child must not wait.
#define SOFTHCA_NEXT __attribute__((section("softhca_next"))) constinit

/// Called when `path` was not found. If it is a path of RDMA devices, and the run that started the
/// program has ended, logs a warning once.
[[gnu::noinline]] void report_ended_run(const char* path);

/// The next definition of a symbol: libc's, or another preloaded library's.
class NextSymbol {
 public:
  constexpr explicit NextSymbol(const char* name) : name_(name) {}

  /// Null: there is none. The first call may precede constructors.
  void* find() {
    auto* found = found_.load(std::memory_order_relaxed);
    return found != nullptr ? found : look_up();
  }

 private:
  void* look_up();

  const char* name_;
  std::atomic<void*> found_ = nullptr;
};

/// The next function of that name. Must be declared with SOFTHCA_NEXT.
template <class Result, class... Arguments>
class Next : public NextSymbol {
 public:
  using NextSymbol::NextSymbol;

  template <class... Values>
  Result operator()(Values... values) {
    auto* const function = reinterpret_cast<Result (*)(Arguments...)>(find());
    if (function == nullptr) return missing();
    return function(values...);
  }

 private:
  /// Unreachable in practice: no program calls a function that its libc lacks.
  static Result missing() {
    errno = ENOSYS;
    if constexpr (std::is_void_v<Result>) {
      return;
    } else if constexpr (std::is_pointer_v<Result>) {
      return nullptr;
    } else {
      return -1;
    }
  }
};

/// The file that a call names, and the name to pass to libc instead.
class Named {
 public:
  Named(int directory, const char* path);
  explicit Named(const char* path);
  Named(const Named&) = delete;
  Named& operator=(const Named&) = delete;

  int directory() const { return directory_; }
  const char* path() const { return path_; }
  /// Whether it lies in the tree. Otherwise path() is the program's, or its equivalent outside of
  /// the tree.
  bool is_served() const { return is_served_; }
  /// The number of the device file that it names (PathMap::device_file).
  std::optional<unsigned> device_file() const { return device_file_; }

 private:
  void serve(const PathMap& paths);

  int directory_;
  const char* path_;
  bool is_served_ = false;
  std::optional<unsigned> device_file_;
  PathBuffer served_;
};

/// True while the working directory is in the tree: there, a relative name of the tree need not
/// contain one of its words.
extern constinit std::atomic<bool> works_in_tree;
inline bool is_near(const char* path) {
  return path[0] != '/' && path[0] != '\0' && works_in_tree.load(std::memory_order_relaxed);
}
/// Call this when the working directory may have changed.
void note_directory();

/// False: the library does not serve the name. Takes few instructions and little stack: a signal
/// handler may have only 8 KiB of stack, and may open files too.
inline bool may_concern(const char* path) {
  return path != nullptr && (may_be_served(path) || is_near(path));
}

/// Calls `call(named)`; the buffers of the Named are in a stack frame of their own.
template <class Call>
[[gnu::noinline]] auto with_name(int directory, const char* path, Call&& call) {
  const Named named(directory, path);
  return call(named);
}
template <class Call>
auto with_name(const char* path, Call&& call) {
  return with_name(AT_FDCWD, path, static_cast<Call&&>(call));
}
/// Whether it is a file of the tree. As in sysfs, not even root may write it (EACCES).
bool is_read_only(const Named& named);
/// Calls `call(directory, path)` with the names for libc.
template <class Call>
auto with_served_name(int directory, const char* path, Call&& call) {
  if (!may_concern(path)) return call(directory, path);
  return with_name(directory, path,
                   [&](const Named& named) { return call(named.directory(), named.path()); });
}
/// The same for functions without a directory: `call(path)`.
template <class Call>
auto with_served_name(const char* path, Call&& call) {
  return with_served_name(AT_FDCWD, path, [&](int, const char* name) { return call(name); });
}
/// Opens for reading a file whose content differs between processes. Returns a descriptor, or -1
/// with errno; kNotLive if it is another file.
inline constexpr int kNotLive = -2;
int open_live(const Named& named, int flags);

/// The name in /proc of a descriptor of this process, null-terminated in `text`. Returns its
/// length, or 0.
std::size_t path_of_descriptor(int fd, PathBuffer& text);

/// The device number (dev_t) of a device file that the library gave to the program. The kernel sees
/// it as an unlinked regular file or a pipe. 0 for other files.
std::uint64_t device_number(mode_t mode, std::uint64_t links, dev_t device, ino_t inode);

}  // namespace softhca::door
