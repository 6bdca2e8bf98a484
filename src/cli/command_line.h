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

/// The reason why `app` refused `argv`. It names the first wrong argument.
/// @pre parsing `argv` with `app` ended with `error`
std::string why_not_parsed(const CLI::App& app, int argc, const char* const* argv,
                           const CLI::ParseError& error);

}  // namespace softhca::cli
