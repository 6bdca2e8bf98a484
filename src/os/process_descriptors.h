// Descriptors that processes begin with.
#pragma once

#include <vector>

namespace softhca::os {

/// Closes all descriptors but the standard ones and `kept`.
void close_all_but(std::vector<int> kept);

/// Opens /dev/null as each standard descriptor that is closed, so that no other file gets its
/// number. Programs that are started find it closed, as it was.
void fill_standard_descriptors();

}  // namespace softhca::os
