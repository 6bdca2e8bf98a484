// What the door's own versions of libc functions share (host-door 2.9). They are found by every
// program that runs under `softhca run`, whatever it does: each says in few instructions that a
// call is none of its business. They keep errno, and allocate nothing.
#pragma once

#include <fcntl.h>
#include <sys/types.h>

#include <atomic>
#include <cerrno>
#include <optional>

#include "door/tree/paths.h"

/// Gives a function of libc another body: SOFTHCA_INTERPOSE(int, door_open, "open", (...)) { }
#define SOFTHCA_INTERPOSE(result, name, symbol, parameters)                     \
  extern "C" [[gnu::visibility("default")]] result name parameters asm(symbol); \
  extern "C" result name parameters

/// The same body under another symbol of libc.
#define SOFTHCA_INTERPOSE_ALIAS(result, name, symbol, parameters, of) \
  extern "C" [[gnu::visibility("default"), gnu::alias(of)]] result name parameters asm(symbol)

namespace softhca::door {

/// The map of paths, or none if the door is not wanted: nothing may change then. It is wanted if
/// SOFTHCA_DOOR names a directory when the program starts.
const PathMap* wanted_paths();

/// Of a Next: looked up as the library is loaded, so that no call has to wait for ld.so, as one in
/// a handler of a signal or in a forked child must not.
#define SOFTHCA_NEXT __attribute__((section("softhca_next"))) constinit

/// `path` was not found. If it is one of RDMA devices, and the run that the program was started in
/// has ended, a warning says so, once.
[[gnu::noinline]] void tell_of_ended_run(const char* path);

/// While it lives, the thread's calls are the door's own and pass through.
class OwnCalls {
 public:
  OwnCalls();
  ~OwnCalls();
  OwnCalls(const OwnCalls&) = delete;
  OwnCalls& operator=(const OwnCalls&) = delete;

 private:
  bool before_;
};

/// A symbol behind ours: libc's, or that of another preloaded library.
class NextSymbol {
 public:
  constexpr explicit NextSymbol(const char* name) : name_(name) {}

  /// Null: there is none. The first call may come before constructors.
  void* find() {
    auto* found = found_.load(std::memory_order_relaxed);
    return found != nullptr ? found : look_up();
  }

 private:
  void* look_up();

  const char* name_;
  std::atomic<void*> found_ = nullptr;
};

/// The next function of that name. To be declared with SOFTHCA_NEXT.
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
  /// No program calls what its libc lacks.
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

/// A file as a call names it, and what to hand to libc instead.
class Named {
 public:
  Named(int directory, const char* path);
  explicit Named(const char* path);
  Named(const Named&) = delete;
  Named& operator=(const Named&) = delete;

  int directory() const { return directory_; }
  const char* path() const { return path_; }
  /// It lies in the tree. Else path() is the program's, or what that comes to outside of the tree.
  bool is_served() const { return is_served_; }
  /// The device file that it names (PathMap::device_file).
  std::optional<unsigned> device_file() const { return device_file_; }

 private:
  void serve(const PathMap& paths);

  int directory_;
  const char* path_;
  bool is_served_ = false;
  std::optional<unsigned> device_file_;
  PathBuffer served_;
};

/// The process works in a directory of the tree, where names need no word of it.
extern constinit std::atomic<bool> works_in_tree;
inline bool is_near(const char* path) {
  return path[0] != '/' && path[0] != '\0' && works_in_tree.load(std::memory_order_relaxed);
}
/// The working directory may be another than before.
void note_directory();

/// False: a file of that name is none of ours. In few instructions, and with little stack: handlers
/// of signals have 8 KiB of it, and open files as well.
inline bool may_concern(const char* path) {
  return path != nullptr && (may_be_served(path) || is_near(path));
}

/// `call(named)`, with the buffers of a Named in a frame of their own.
template <class Call>
[[gnu::noinline]] auto with_name(int directory, const char* path, Call&& call) {
  const Named named(directory, path);
  return call(named);
}
template <class Call>
auto with_name(const char* path, Call&& call) {
  return with_name(AT_FDCWD, path, static_cast<Call&&>(call));
}
/// True for a file of the tree. Like a file of sysfs it cannot be written, even by root (EACCES).
bool is_read_only(const Named& named);
/// `call(directory, path)` with what to hand to libc.
template <class Call>
auto with_served_name(int directory, const char* path, Call&& call) {
  if (!may_concern(path)) return call(directory, path);
  return with_name(directory, path,
                   [&](const Named& named) { return call(named.directory(), named.path()); });
}
/// The same for calls without a directory: `call(path)`.
template <class Call>
auto with_served_name(const char* path, Call&& call) {
  return with_served_name(AT_FDCWD, path, [&](int, const char* name) { return call(name); });
}
/// Opens a file whose content is not the same for all processes, to be read: a descriptor, or -1
/// with errno; kNotLive if it is another.
inline constexpr int kNotLive = -2;
int open_live(const Named& named, int flags);

/// What /proc says of a descriptor of this process, in `text` with an end mark: the length, or 0.
std::size_t path_of_descriptor(int fd, PathBuffer& text);

/// Of a regular file that is in no directory, or a pipe, as device files of ours are: the device
/// file's number of type dev_t, or 0.
std::uint64_t device_number(mode_t mode, std::uint64_t links, dev_t device, ino_t inode);

}  // namespace softhca::door
