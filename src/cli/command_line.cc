#include "cli/command_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

namespace softhca::cli {
namespace {

std::string no_such(std::string_view what, std::string_view word, std::string_view command) {
  return fmt::format("there is no {} '{}'; {} --help lists them", what, word, command);
}

}  // namespace

std::string why_not_parsed(const CLI::App& app, int argc, const char* const* argv,
                           const CLI::ParseError& error) {
  const auto commands = app.get_subcommands();
  if (commands.empty()) {
    if (argc < 2) return "which command? softhca --help lists them";
    const std::string_view word = argv[1];
    return no_such(word.starts_with('-') ? "option" : "command", word, "softhca");
  }
  const auto name = commands.front()->get_name();
  const auto unknown = app.remaining(true);
  for (int i = 2; i < argc; ++i) {
    const std::string word = argv[i];
    if (std::ranges::find(unknown, word) == unknown.end()) continue;
    if (word.starts_with('-')) return name + ": " + no_such("option", word, "softhca " + name);
    return fmt::format("{}: '{}' is one word too many", name, word);
  }
  return name + ": " + error.what();
}

}  // namespace softhca::cli
