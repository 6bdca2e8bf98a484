// The words of the command line that are not understood.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace softhca::cli {

/// What is wrong with them, in words that name the first one that is. @pre parsing `argv` with
/// `app` ended with `error`
std::string why_not_parsed(const CLI::App& app, int argc, const char* const* argv,
                           const CLI::ParseError& error);

}  // namespace softhca::cli
