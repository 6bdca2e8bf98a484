// `softhca run`: runs a program with one of softhca's devices behind the machine's own libraries.
// src/door documents the library that it preloads.
#pragma once

#include <string>
#include <vector>

#include "run/control_options.h"
#include "run/device_options.h"
#include "run/fabric_options.h"

namespace CLI {
class App;
}

namespace softhca::cli {

struct RunOptions {
  run::FabricOptions fabric;
  run::DeviceOptions seen;
  run::ControlOptions control;
  std::vector<std::string> program;  ///< with its arguments
};

CLI::App* add_run(CLI::App& app, RunOptions& options);
/// Takes the program of `softhca run` and all words after it off the command line: the words after
/// "--", or from the first word that is not an option of `run`. Returns how many words are left.
int take_program(const CLI::App& run, int argc, const char* const* argv, RunOptions& options);
/// Returns the exit status: the program's; 128 plus the number of the signal that ended it; 127 or
/// 126 if it was not found or cannot be run; 1 for an error of softhca.
int run_run(const RunOptions& options);

}  // namespace softhca::cli
