// Moves descriptors of the library out of the program's way, so that the program does not close
// them.
#pragma once

#include <utility>

#include "os/kept_descriptors.h"
#include "os/unique_fd.h"

namespace softhca::os {

/// Returns a copy that replaces `fd`, or `fd` itself if no descriptor is left.
inline UniqueFd keep(UniqueFd fd) {
  const int copy = keep_copy(fd.get());
  return copy >= 0 ? UniqueFd(copy) : std::move(fd);
}

}  // namespace softhca::os
