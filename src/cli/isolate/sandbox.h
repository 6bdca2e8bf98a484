// What a process that serves a guest gives up before it hears the first byte of it: new privileges,
// all of the file system, networks, other processes, and every system call that serving does not
// need. A call that is not allowed ends the process.
#pragma once

#include <string>
#include <vector>

#include "util/result.h"

namespace softhca::cli {

/// For this thread and all that it starts; there is no way back. Returns what this kernel or this
/// build cannot take away, in words for the log.
util::Result<std::vector<std::string>> enter_sandbox();

}  // namespace softhca::cli
