// `softhca inspect` and `softhca fault`: send requests to a server that runs with --control.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "util/inspection.h"

namespace CLI {
class App;
}

namespace softhca::cli {

struct InspectOptions {
  std::string path;
  std::string function;  ///< empty: all
  bool json = false;
  std::uint64_t from = 0;
  std::uint32_t count = util::Inspection::kCount;
};

struct FaultOptions {
  std::string path;
  std::string rule;    ///< for add
  std::string number;  ///< for remove
  std::string verb;    ///< the subcommand
};

CLI::App* add_inspect(CLI::App& app, InspectOptions& options);
int run_inspect(const InspectOptions& options);

CLI::App* add_fault(CLI::App& app, FaultOptions& options);
int run_fault(const FaultOptions& options);

}  // namespace softhca::cli
