// `softhca docs`: pages of docs/ generated from the program's own tables. For tools/docs.py; the
// help does not list it.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace softhca::cli {

struct DocsOptions {
  std::string page;
};

CLI::App* add_docs(CLI::App& app, DocsOptions& options);
int run_docs(const DocsOptions& options);

/// The ConnectX commands, as Markdown.
std::string commands_page();
/// The ConnectX capabilities and the commands that they limit, as Markdown.
std::string limits_page();
/// The limits in table 4-1 of the RSNIC's document beside those of the model, as Markdown.
std::string rsnic_limits_page();

}  // namespace softhca::cli
