// The limit on the descriptors of the process (RLIMIT_NOFILE).
#pragma once

#include <cstddef>

namespace softhca::os {

/// Raises the limit of descriptors to the most the process may have; programs started later inherit
/// it. Returns the limit.
std::size_t raise_descriptor_limit();

}  // namespace softhca::os
