// Detects programs that a preloaded library does not reach, and suggests a remedy.
#pragma once

#include <string>

namespace softhca::cli {

/// The path of `word`, searched in $PATH as by a shell; empty if it is not found.
std::string find_program(const std::string& word);
/// Why the program at `path` would not see our device, for its user. Empty: it would, or the file
/// is of an unknown kind (a script, say).
std::string why_out_of_reach(const std::string& path);

}  // namespace softhca::cli
