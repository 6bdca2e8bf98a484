// Error messages for command lines that cannot be parsed.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace softhca::cli {

/// The closest of `names` to `word`, as " (name?)"; empty if none is similar.
std::string nearest(std::string_view word, const std::vector<std::string>& names);

/// The reason why `app` refused `argv`. It names the first wrong argument.
/// @pre parsing `argv` with `app` ended with `error`
std::string why_not_parsed(const CLI::App& app, int argc, const char* const* argv,
                           const CLI::ParseError& error);

}  // namespace softhca::cli
