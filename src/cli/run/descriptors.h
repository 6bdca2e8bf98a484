// Descriptors of processes that outlive the command that starts them.
#pragma once

#include <vector>

namespace softhca::cli {

/// Closes all descriptors but the standard ones and `kept`.
void close_all_but(std::vector<int> kept);

}  // namespace softhca::cli
