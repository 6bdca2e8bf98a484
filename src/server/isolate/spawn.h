// Starts a program with selected descriptors only.
#pragma once

#include <sys/types.h>

#include <span>
#include <string>
#include <vector>

#include "util/result.h"

namespace softhca::server {

/// Runs the program at `path` with arguments `words`. It inherits `inherited` under the same
/// numbers, and `errors` as standard error; standard input and output are /dev/null. Signals are
/// reset as at a login. Can be called from any thread; returns when the program has begun.
util::Result<pid_t> spawn_program(const std::string& path, const std::vector<std::string>& words,
                                  std::span<const int> inherited, int errors);

/// Describes a status of wait(): "exit status 1", "signal 11 (Segmentation fault)".
std::string describe_end(int status);

}  // namespace softhca::server
