// What the door's own versions of libc functions share (host-door 2.9). They are found by every
// program that runs under `softhca run`, whatever it does: each says in few instructions that a
// call is none of its business. They keep errno, and allocate nothing.
#pragma once

#include <dlfcn.h>
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

/// While it lives, the thread's calls are the door's own and pass through.
class OwnCalls {
 public:
  OwnCalls();
  ~OwnCalls();
  OwnCalls(const OwnCalls&) = delete;
  OwnCalls& operator=(const OwnCalls&) = delete;
  /// Of this thread: a handler of a signal has interrupted the door where one exists.
  static bool exist();

 private:
  bool before_;
};

/// The next function of that name behind ours: libc's, or that of another preloaded library. Looked
/// up at the first call, which may come before constructors.
template <class Result, class... Arguments>
class Next {
 public:
  constexpr explicit Next(const char* symbol) : symbol_(symbol) {}

  template <class... Values>
  Result operator()(Values... values) {
    auto* function = function_.load(std::memory_order_relaxed);
    if (function == nullptr) {
      const int before = errno;
      function = reinterpret_cast<Result (*)(Arguments...)>(::dlsym(RTLD_NEXT, symbol_));
      errno = before;
      function_.store(function, std::memory_order_relaxed);
    }
    if (function == nullptr) return missing();
    return function(values...);
  }

 private:
  /// No program calls what its libc lacks.
  static Result missing() {
    errno = ENOSYS;
    if constexpr (std::is_pointer_v<Result>) {
      return nullptr;
    } else {
      return -1;
    }
  }

  const char* symbol_;
  std::atomic<Result (*)(Arguments...)> function_ = nullptr;
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
  bool is_served() const { return path_ == served_.data(); }
  /// The device file that it names (PathMap::device_file).
  std::optional<unsigned> device_file() const { return device_file_; }

 private:
  void serve(const PathMap& paths);

  int directory_;
  const char* path_;
  std::optional<unsigned> device_file_;
  PathBuffer served_;
};

/// What /proc says of a descriptor of this process, in `text` with an end mark: the length, or 0.
std::size_t path_of_descriptor(int fd, PathBuffer& text);

/// Of a regular file that is in no directory, or a pipe, as device files of ours are: the device
/// file's number of type dev_t, or 0.
std::uint64_t device_number(mode_t mode, std::uint64_t links, dev_t device, ino_t inode);

}  // namespace softhca::door
