// `softhca explain`: the meaning of a number in a guest's log. It asks no server, since the numbers
// never change.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "util/result.h"

namespace CLI {
class App;
}

namespace softhca::cli {

struct ExplainOptions {
  std::vector<std::string> words;  ///< [KIND] NUMBER
};

CLI::App* add_explain(CLI::App& app, ExplainOptions& options);
/// Prints the answer, and errors on stderr. Returns the exit status: 1 if the number has no
/// meaning.
int run_explain(const ExplainOptions& options);

/// The syndrome of a refused ConnectX command.
util::Result<std::string> explain_command(std::uint32_t syndrome);
/// A byte of a ConnectX error CQE (syndrome, vendor error syndrome, softhca's reason), or the dword
/// that contains them.
util::Result<std::string> explain_cqe(std::uint32_t number);
/// The class of an SDXI error log record.
util::Result<std::string> explain_sdxi(std::uint32_t err_class);

}  // namespace softhca::cli
