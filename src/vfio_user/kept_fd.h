// Descriptors of the library out of the program's way, and safe from it.
#pragma once

#include <utility>

#include "util/kept_descriptors.h"
#include "vfio_user/unique_fd.h"

namespace softhca::vfio_user {

/// In the place of `fd`, which it is where no other descriptor is left.
inline UniqueFd keep(UniqueFd fd) {
  const int copy = util::keep_copy(fd.get());
  return copy >= 0 ? UniqueFd(copy) : std::move(fd);
}

}  // namespace softhca::vfio_user
