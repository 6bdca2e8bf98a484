// The privileges that a process gives up before it reads a guest's first byte: new privileges, the
// file system, networks, other processes, and all system calls that serving does not need. A
// forbidden call kills the process.
#pragma once

#include <string>
#include <vector>

#include "util/result.h"

namespace softhca::server {

/// Restricts this thread and all threads that it starts, irrevocably. Returns remarks for the log
/// on what this kernel or build cannot restrict.
util::Result<std::vector<std::string>> enter_sandbox();

}  // namespace softhca::server
