// Starts a program with the descriptors that it is to have, and no others of ours.
#pragma once

#include <sys/types.h>

#include <span>
#include <string>
#include <vector>

#include "util/result.h"

namespace softhca::cli {

/// Runs the program at `path` with `words` as its arguments. It inherits `inherited` under their
/// numbers, and `errors` as its standard error; its standard input and output are nothing. Signals
/// are as in a new login. Waits until the program has begun, from any thread.
util::Result<pid_t> spawn_program(const std::string& path, const std::vector<std::string>& words,
                                  std::span<const int> inherited, int errors);

/// Words for a status of wait(): "exit status 1", "signal 11 (Segmentation fault)".
std::string describe_end(int status);

}  // namespace softhca::cli
