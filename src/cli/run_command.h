// `softhca run`: runs a program with a device of ours behind the libraries that it finds on this
// machine. See docs of the library that it preloads, src/door.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace softhca::cli {

struct RunOptions {
  std::string fabric;  ///< that it shares with other runs; empty: one of its own
  std::string pcap;    ///< file to capture to; empty: none
  /// Of the devices of its first process, in their order, "if:NAME" for those of an interface;
  /// where there is none, it is made of the process's number.
  std::vector<std::string> addresses;
  unsigned devices = 0;              ///< that a program sees; 0: as many as there are models
  std::vector<std::string> models;   ///< of the devices; empty: connectx
  std::string control;               ///< path of a control socket; empty: none
  std::vector<std::string> program;  ///< with its arguments
};

CLI::App* add_run(CLI::App& app, RunOptions& options);
/// Takes what stands behind "--" of `softhca run` away from the command line: it is the program's,
/// to the letter. Returns how many words are left.
int take_program(int argc, const char* const* argv, RunOptions& options);
/// The exit status: the program's; 128 and a number if it ended by that signal; 127 or 126 if it
/// was not found or cannot be run; 1 for an error of ours.
int run_run(const RunOptions& options);

}  // namespace softhca::cli
