// Divides the kernel's limits of the process between its clients, so that no client can take
// another's share.
#pragma once

#include <cstddef>

#include "util/result.h"

namespace softhca::vfio_user {

struct ClientShare {
  std::size_t maps;      ///< of its memory
  std::size_t eventfds;  ///< for its interrupts
};

/// Raises the soft limit of descriptors to the hard limit, and divides the resources by `clients`.
/// Fails if a share is too small.
util::Result<ClientShare> share_process(std::size_t clients);

}  // namespace softhca::vfio_user
