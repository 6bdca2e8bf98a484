#include "cli/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "util/nearest.h"

namespace softhca::cli {
namespace {

std::vector<std::string> commands_of(const CLI::App& command) {
  std::vector<std::string> names;
  const auto is_shown = [](const CLI::App* one) { return !one->get_group().empty(); };
  for (const auto* one : command.get_subcommands(is_shown)) names.push_back(one->get_name());
  return names;
}

std::vector<std::string> options_of(const CLI::App& command) {
  std::vector<std::string> names;
  for (const auto* option : command.get_options()) {
    for (const auto& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

/// The error if `command`, named `name`, does not know `word`.
std::string no_such(const CLI::App& command, const std::string& name, std::string_view word) {
  const bool is_option = word.starts_with('-');
  if (word == "help" || (word == "version" && name == "softhca")) {
    return fmt::format("there is no command '{}' (--{}?); {} --help lists them", word, word, name);
  }
  return fmt::format(
      "there is no {} '{}'{}; {} --help lists them", is_option ? "option" : "command", word,
      util::nearest(word, is_option ? options_of(command) : commands_of(command)), name);
}

}  // namespace

std::string why_not_parsed(const CLI::App& app, int argc, const char* const* argv,
                           const CLI::ParseError& error) {
  const CLI::App* command = &app;
  std::string called = "softhca", before;
  for (auto inner = command->get_subcommands(); !inner.empty();
       inner = command->get_subcommands()) {
    command = inner.front();
    called += " " + command->get_name();
    before += command->get_name() + ": ";
  }
  const bool wants_command = !commands_of(*command).empty();
  if (command == &app && argc >= 2) return no_such(app, called, argv[1]);
  const auto unknown = app.remaining(true);
  for (int i = 2; i < argc; ++i) {
    const std::string word = argv[i];
    if (std::ranges::find(unknown, word) == unknown.end()) continue;
    if (word.starts_with('-') || wants_command) return before + no_such(*command, called, word);
    return fmt::format("{}'{}' is one word too many", before, word);
  }
  if (wants_command && error.get_exit_code() == static_cast<int>(CLI::ExitCodes::RequiredError) &&
      std::string_view(error.what()).find("subcommand") != std::string_view::npos) {
    return fmt::format("{}which command? {} --help lists them", before, called);
  }
  return before + error.what();
}

}  // namespace softhca::cli
