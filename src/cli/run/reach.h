// Which programs a preloaded library does not reach, and what to do about it.
#pragma once

#include <string>

namespace softhca::cli {

/// Where `word` is, as a shell finds it in $PATH; empty if it is nowhere.
std::string find_program(const std::string& word);
/// Why the file at `path` would not see our device, in words for its user; empty: it would, or it
/// is no program that we know anything of (a script, say).
std::string why_out_of_reach(const std::string& path);

}  // namespace softhca::cli
