// Detects programs that cannot be started, or that a preloaded library does not reach, and suggests
// a remedy.
#pragma once

#include <string>

namespace softhca::run {

/// The path of `word`, searched in $PATH as by a shell; empty if it is not found.
std::string find_program(const std::string& word);
/// A reason that errno value `error`, from an attempt to start `word`, does not give. Empty: there
/// is no such reason, or no such file.
std::string why_not_started(const std::string& word, int error);
/// Why the program at `path` would not reach softhca's devices, for its user. Empty: it would, or
/// the file is of an unknown kind (a script, say).
std::string why_out_of_reach(const std::string& path);

}  // namespace softhca::run
