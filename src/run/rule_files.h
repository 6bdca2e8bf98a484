// Fault rules of a command line: each is a rule, or @FILE with a rule on each line.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "util/result.h"

namespace softhca::run {

/// Replaces each @FILE by the rules in the file. Blank lines and what follows a # do not count.
util::Result<std::vector<std::string>> read_rules(const std::vector<std::string>& words);

/// The rules in the text of such a file.
std::vector<std::string> rules_in(std::string_view text);

}  // namespace softhca::run
