// Two processes wake each other from sleep.
//
// It is a socket pair, not an eventfd: whether a write to an eventfd blocks is a property of the
// open file, which the other side could change for both. With sockets each side has its own file.
#pragma once

#include <utility>

#include "util/result.h"

namespace softhca::os {

/// One of the two ends.
class WakeSocket {
 public:
  static util::Result<std::pair<WakeSocket, WakeSocket>> make_pair();
  /// The end made by another process. Takes ownership of `fd`.
  explicit WakeSocket(int fd) : fd_(fd) {}
  WakeSocket(WakeSocket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  WakeSocket& operator=(WakeSocket&&) = delete;
  ~WakeSocket();

  /// Readable after the other side has called wake(), until clear().
  int fd() const { return fd_; }
  /// Never blocks: a full socket means that a wake is pending already.
  void wake() { wake(fd_); }
  static void wake(int fd);
  /// @pre the other side sends no descriptors
  void clear();
  /// The caller owns the descriptor.
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

}  // namespace softhca::os
