// The words of the command line that are not understood.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace softhca::cli {

/// The reason why `app` refused `argv`, with the first wrong argument named.
/// @pre parsing `argv` with `app` ended with `error`
std::string why_not_parsed(const CLI::App& app, int argc, const char* const* argv,
                           const CLI::ParseError& error);

}  // namespace softhca::cli
