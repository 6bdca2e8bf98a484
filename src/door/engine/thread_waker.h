// Wakes the thread that drives the devices.
#pragma once

#include "os/unique_fd.h"
#include "util/result.h"

namespace softhca::door {

class ThreadWaker {
 public:
  util::Result<void> set_up();

  /// The eventfd for which the thread waits.
  int fd() const { return fd_.get(); }
  void wake() const;
  /// The thread sleeps for long, or is about to. Call with the lock.
  void set_asleep(bool asleep) { asleep_ = asleep; }
  /// Wakes a thread that sleeps for long: there may be new work. Call with the lock.
  void wake_sleeper() const {
    if (asleep_) wake();
  }

 private:
  os::UniqueFd fd_;
  bool asleep_ = false;
};

}  // namespace softhca::door
