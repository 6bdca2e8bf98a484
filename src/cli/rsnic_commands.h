// `softhca rsnic`: data to compare the model with the document of the RSNIC-IP.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace softhca::cli {

struct RsnicOptions {
  std::string path;  ///< of the control socket, or of a trace
  std::string function = "rsnic0";
  std::string verb;  ///< the subcommand
};

CLI::App* add_rsnic(CLI::App& app, RsnicOptions& options);
int run_rsnic(const RsnicOptions& options);

/// The CSR tables as Markdown: names, addresses and default values as printed, and the sources of
/// live values.
std::string csr_page();
/// The tables of chapter 9 as Markdown.
std::string sizing_page();

}  // namespace softhca::cli
