// Common parts of the benchmark programs: options, rounds, output.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "measure.h"

namespace CLI {
class App;
}

namespace softhca::bench {

struct Options {
  unsigned rounds = 7;
  unsigned milliseconds = 200;  ///< minimum time for each figure
  std::string json;
  std::string only;
  std::uint64_t operations = 0;

  bool wants(const std::string& name) const { return only.empty() || only == name; }
};

/// One figure per round, with one of the peer next to it if there is a peer.
Result measure_rounds(const Options& options, const std::string& name, const std::string& unit,
                      const std::function<double()>& value, const std::string& peer_name = "",
                      const std::function<double()>& peer = {});
/// Nanoseconds per operation of `batch`.
double time_of(const Options& options, const std::function<void(std::uint64_t n)>& batch);

struct Program {
  std::string name;
  std::string text;
  /// Names of the benchmarks. If empty, the program has no --only and always runs all.
  std::vector<std::string> names;
  /// Runs what --only selects. With Options::operations, runs exactly that many operations of it
  /// and returns no result.
  std::function<std::vector<Result>()> run;
  std::string where = "in process";
  std::function<void(CLI::App&)> add_options = {};
};

/// Exit status for main(). `options` is filled in before `run` is called.
int run_program(int argc, char** argv, const Program& program, Options& options);

}  // namespace softhca::bench
