#include "program.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <stdexcept>

#include "report.h"
#include "util/log.h"

namespace softhca::bench {

namespace {

void run(const Program& program, const Options& options) {
  util::set_log_level(util::LogLevel::kWarning);
  if (!options.only.empty() &&
      std::ranges::find(program.names, options.only) == program.names.end()) {
    throw std::runtime_error("no benchmark has that name: see --list");
  }
  const auto results = program.run();
  if (options.operations != 0) return;
  print(results);
  if (!options.json.empty()) write_json(results, options.json, program.where);
}

}  // namespace

Result measure_rounds(const Options& options, const std::string& name, const std::string& unit,
                      const std::function<double()>& value, const std::string& peer_name,
                      const std::function<double()>& peer) {
  Result result{
      .name = name, .unit = unit, .values = {}, .peer_name = peer_name, .peer_values = {}};
  for (unsigned round = 0; round < options.rounds; ++round) {
    show_progress(name, round, options.rounds);
    result.values.push_back(value());
    if (peer) result.peer_values.push_back(peer());
  }
  end_progress();
  return result;
}

double time_of(const Options& options, const std::function<void(std::uint64_t n)>& batch) {
  return time_per_operation(batch, std::chrono::milliseconds(options.milliseconds));
}

int run_program(int argc, char** argv, const Program& program, Options& options) {
  CLI::App app{program.text};
  bool list = false;
  app.add_option("--rounds", options.rounds, "figures per benchmark; the median counts (7)")
      ->check(CLI::Range(1, 1000));
  app.add_option("--milliseconds", options.milliseconds,
                 fmt::format("at least so long per figure ({})", options.milliseconds));
  app.add_option("--json", options.json, "write the results here as well");
  if (!program.names.empty()) {
    app.add_option("--only", options.only, "one benchmark, by its name");
    app.add_flag("--list", list, "print the names and end");
    app.add_option(
           "--operations", options.operations,
           "do exactly so many operations of --only and print nothing: for instruction counts")
        ->needs("--only");
  }
  if (program.add_options) program.add_options(app);
  CLI11_PARSE(app, argc, argv);
  if (list) {
    for (const auto& name : program.names) fmt::print("{}\n", name);
    return 0;
  }
  try {
    run(program, options);
  } catch (const std::exception& error) {
    std::cerr << program.name << ": " << error.what() << "\n";
    return 1;
  }
  return 0;
}

}  // namespace softhca::bench
