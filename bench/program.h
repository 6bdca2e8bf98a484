// What the benchmark programs have in common: their options, their rounds, what they print.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "measure.h"

namespace softhca::bench {

struct Options {
  unsigned rounds = 7;
  unsigned milliseconds = 200;  ///< of a figure, at least
  std::string json;
  std::string only;
  std::uint64_t operations = 0;

  bool wants(const std::string& name) const { return only.empty() || only == name; }
};

/// One figure a round, and beside each one of the peer's, if there is a peer.
Result measure_rounds(const Options& options, const std::string& name, const std::string& unit,
                      const std::function<double()>& value, const std::string& peer_name = "",
                      const std::function<double()>& peer = {});
/// Nanoseconds of an operation of `batch`.
double time_of(const Options& options, const std::function<void(std::uint64_t n)>& batch);

struct Program {
  std::string name;
  std::string text;
  /// Names of the benchmarks; empty: it has no --only, nothing but all of them.
  std::vector<std::string> names;
  /// What --only wants. With Options::operations exactly so many operations of it, and no result.
  std::function<std::vector<Result>()> run;
  std::string where = "in process";
  std::function<void(CLI::App&)> add_options = {};
};

/// What main() returns. `options` is filled in before `run` is called.
int run_program(int argc, char** argv, const Program& program, Options& options);

}  // namespace softhca::bench
