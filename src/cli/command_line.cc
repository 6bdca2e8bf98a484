#include "cli/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <numeric>

namespace softhca::cli {
namespace {

/// Edit distance: letters to insert, delete or replace to turn `a` into `b`.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (const char letter : a) {
    auto diagonal = row[0]++;
    for (std::size_t i = 0; i != b.size(); ++i) {
      const auto replaced = diagonal + (letter == b[i] ? 0U : 1U);
      diagonal = row[i + 1];
      row[i + 1] = std::min({replaced, diagonal + 1, row[i] + 1});
    }
  }
  return row.back();
}

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
  return fmt::format("there is no {} '{}'{}; {} --help lists them",
                     is_option ? "option" : "command", word,
                     nearest(word, is_option ? options_of(command) : commands_of(command)), name);
}

}  // namespace

std::string nearest(std::string_view word, const std::vector<std::string>& names) {
  constexpr std::size_t kSlips = 2;
  const auto far = [word](const std::string& name) { return distance(word, name); };
  const auto at = std::ranges::min_element(names, {}, far);
  if (at == names.end() || far(*at) > std::min(kSlips, at->size() / 2)) return {};
  return fmt::format(" ({}?)", *at);
}

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
