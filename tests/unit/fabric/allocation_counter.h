// Counts the allocations of the test program, so that a test can demand that there is none.
#pragma once

#include <cstddef>

namespace softhca::fabric {

/// Calls of operator new so far.
std::size_t allocation_count();

}  // namespace softhca::fabric
