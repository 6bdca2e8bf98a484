// The descriptors of processes that outlive the command that starts them.
#pragma once

#include <vector>

namespace softhca::cli {

/// Closes all descriptors but the standard ones and `kept`.
void close_all_but(std::vector<int> kept);

/// As many descriptors as the process may have: a hub has three for each of its processes. Programs
/// that are started later inherit it.
void raise_descriptor_limit();

}  // namespace softhca::cli
