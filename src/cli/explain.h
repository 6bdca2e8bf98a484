// `softhca explain`: what a number from a guest's log means. No server is asked: the numbers are
// the same for ever.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "util/result.h"

namespace softhca::cli {

struct ExplainOptions {
  std::vector<std::string> words;  ///< [KIND] NUMBER
};

CLI::App* add_explain(CLI::App& app, ExplainOptions& options);
/// Prints the answer, errors on stderr. The exit status: 1 if the number means nothing.
int run_explain(const ExplainOptions& options);

/// The syndrome of a refused ConnectX command.
util::Result<std::string> explain_command(std::uint32_t syndrome);
/// A byte of an error CQE of a ConnectX (syndrome, vendor error syndrome, our reason), or the dword
/// that they stand in.
util::Result<std::string> explain_cqe(std::uint32_t number);
/// The class of an SDXI error log record.
util::Result<std::string> explain_sdxi(std::uint32_t err_class);

}  // namespace softhca::cli
