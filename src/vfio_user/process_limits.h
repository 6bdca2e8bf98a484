// What the kernel lets the process have, shared out between its clients: one that takes all it can
// get leaves the others theirs.
#pragma once

#include <cstddef>

#include "util/result.h"

namespace softhca::vfio_user {

/// Of one client.
struct ClientShare {
  std::size_t maps;      ///< of its memory
  std::size_t eventfds;  ///< for its interrupts
};

/// Raises the soft limit of descriptors to the hard one, and divides what there is by `clients`.
/// Fails if too little is left for each.
util::Result<ClientShare> share_process(std::size_t clients);

/// As many descriptors as the process may have; programs that it starts later inherit that. Returns
/// how many there are.
std::size_t raise_descriptor_limit();

}  // namespace softhca::vfio_user
