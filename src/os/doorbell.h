// By a doorbell, two processes wake each other from sleep.
//
// It is a socket pair, not an eventfd: whether a write to an eventfd blocks is a property of the
// open file, which the other side could change for both. With sockets each side has its own file.
#pragma once

#include <utility>

#include "util/result.h"

namespace softhca::os {

/// One of the two ends.
class Doorbell {
 public:
  static util::Result<std::pair<Doorbell, Doorbell>> make_pair();
  /// The end made by another process. Takes ownership of `fd`.
  explicit Doorbell(int fd) : fd_(fd) {}
  Doorbell(Doorbell&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Doorbell& operator=(Doorbell&&) = delete;
  ~Doorbell();

  /// Readable after the other side has rung, until answer().
  int fd() const { return fd_; }
  /// Never blocks: a full socket means that it has rung already.
  void ring() { ring(fd_); }
  static void ring(int fd);
  /// @pre the other side sends no descriptors
  void answer();
  /// The caller owns the descriptor.
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

}  // namespace softhca::os
