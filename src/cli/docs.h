// `softhca docs`: pages of docs/ that are made from the program's own tables. For tools/docs.py; it
// does not show up in the help.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace softhca::cli {

struct DocsOptions {
  std::string page;
};

CLI::App* add_docs(CLI::App& app, DocsOptions& options);
int run_docs(const DocsOptions& options);

/// The commands of the ConnectX, as Markdown.
std::string commands_page();
/// Its capabilities, and the commands that they limit.
std::string limits_page();
/// What table 4-1 of the RSNIC's document prints of each, and what the card has.
std::string rsnic_limits_page();

}  // namespace softhca::cli
