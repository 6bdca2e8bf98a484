// `softhca perf`: perftest's measurements between two HCAs, in this process or elsewhere.
#pragma once

#include <string>

#include "perf/options.h"

namespace CLI {
class App;
}

namespace softhca::cli {

struct PerfOptions {
  perf::Options options;
  std::string test;  ///< as given: write_bw
  std::string connection = "RC";
  std::string atomic = "FETCH_AND_ADD";
};

CLI::App* add_perf(CLI::App& parent, PerfOptions& options);
/// Prints the table. Returns the exit status.
int run_perf(PerfOptions options);

}  // namespace softhca::cli
