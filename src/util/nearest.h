// The name that a user may have meant.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace softhca::util {

/// The closest of `names` to `word`, as " (name?)"; empty if none is similar.
std::string nearest(std::string_view word, const std::vector<std::string>& names);

}  // namespace softhca::util
