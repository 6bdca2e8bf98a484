// A descriptor reserved for when the process has no others. A client that waits at a listener could
// otherwise not be accepted, and would wake the loop forever.
#pragma once

#include <fcntl.h>
#include <sys/socket.h>

#include "os/unique_fd.h"

namespace softhca::os {

class SpareDescriptor {
 public:
  /// Accepts a client that waits at `listener`, which does not block, and closes the connection.
  /// False if none waits.
  bool turn_away(int listener) {
    spare_.reset();
    const bool one =
        static_cast<bool>(UniqueFd(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC)));
    spare_ = open();
    return one;
  }

 private:
  static UniqueFd open() { return UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }

  UniqueFd spare_ = open();
};

}  // namespace softhca::os
