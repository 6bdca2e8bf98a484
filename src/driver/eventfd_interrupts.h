// MSI-X vectors as eventfds, as vfio and vfio-user signal them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "os/unique_fd.h"
#include "util/clock.h"
#include "util/result.h"

namespace softhca::driver {

class EventfdInterrupts {
 public:
  /// One eventfd for each of `count` vectors.
  static util::Result<EventfdInterrupts> create(unsigned count);
  EventfdInterrupts() = default;

  /// The eventfds by vector, for the side that signals them.
  std::vector<int> fds() const;
  unsigned count() const { return static_cast<unsigned>(vectors_.size()); }
  /// How often `vector` was signaled; 0 if there is no such vector.
  std::uint64_t signaled(unsigned vector);
  /// Sleeps until `vector` is signaled, `other` (a descriptor, or -1) is readable, or `until` has
  /// passed.
  void wait(unsigned vector, int other, util::Time until) const;

 private:
  struct Vector {
    os::UniqueFd eventfd;
    std::uint64_t signaled = 0;
  };
  std::vector<Vector> vectors_;
};

}  // namespace softhca::driver
