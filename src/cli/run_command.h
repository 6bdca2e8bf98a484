// `softhca run`: runs a program with a device of ours behind the libraries that it finds on this
// machine. See docs of the library that it preloads, src/door.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "cli/run/fabric_options.h"
#include "cli/run/seen_devices.h"

namespace softhca::cli {

struct RunOptions {
  FabricOptions fabric;
  SeenDevices seen;
  std::string control;               ///< path of a control socket; empty: none
  std::vector<std::string> program;  ///< with its arguments
};

CLI::App* add_run(CLI::App& app, RunOptions& options);
/// Takes the program of `softhca run` away from the command line, with all that follows, which is
/// the program's to the letter: what stands behind "--", or the first word that is no option of
/// `run`. Returns how many words are left.
int take_program(const CLI::App& run, int argc, const char* const* argv, RunOptions& options);
/// The exit status: the program's; 128 and a number if it ended by that signal; 127 or 126 if it
/// was not found or cannot be run; 1 for an error of ours.
int run_run(const RunOptions& options);

}  // namespace softhca::cli
