// By which two processes wake each other, when one of them sleeps.
//
// A pair of sockets and not an eventfd: whether a write to an eventfd waits is a property of the
// file, which the other side could change for both. Here each side has a file of its own.
#pragma once

#include <utility>

#include "util/result.h"

namespace softhca::util {

/// One of the two ends.
class Doorbell {
 public:
  static Result<std::pair<Doorbell, Doorbell>> make_pair();
  /// An end that another process has made. Takes `fd`.
  explicit Doorbell(int fd) : fd_(fd) {}
  Doorbell(Doorbell&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Doorbell& operator=(Doorbell&&) = delete;
  ~Doorbell();

  /// Readable after the other side has rung, until answer().
  int fd() const { return fd_; }
  /// Never waits: a bell that is full has rung already.
  void ring();
  void answer();

 private:
  int fd_;
};

}  // namespace softhca::util
