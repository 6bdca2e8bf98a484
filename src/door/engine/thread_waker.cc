#include "door/engine/thread_waker.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>

#include "os/kept_fd.h"

namespace softhca::door {

util::Result<void> ThreadWaker::set_up() {
  fd_ = os::keep(os::UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)));
  if (!fd_) return util::fail_errno("eventfd (see ulimit -n)");
  return {};
}

void ThreadWaker::wake() const {
  const std::uint64_t one = 1;
  (void)!::write(fd_.get(), &one, sizeof one);
}

}  // namespace softhca::door
