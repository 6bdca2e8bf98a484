// A descriptor that is kept for when there are no others: one who waits at a listener that nobody
// has a descriptor for would wait for ever, and wake its loop for ever.
#pragma once

#include <fcntl.h>
#include <sys/socket.h>

#include "vfio_user/unique_fd.h"

namespace softhca::vfio_user {

class SpareDescriptor {
 public:
  /// Takes one who waits at `listener`, which does not block, and hangs up. False: there is nobody.
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

}  // namespace softhca::vfio_user
