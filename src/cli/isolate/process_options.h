// What a process for some of a server's devices is told at its start: options of a command that
// nobody types, and descriptors that it inherits.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace softhca::cli {

struct ProcessOptions {
  std::vector<std::string> devices;  ///< as --device takes them
  std::vector<unsigned> places;      ///< of each, on the server's command line
  std::vector<int> listeners;        ///< descriptor of each one's socket, which listens
  std::vector<int> rings;            ///< of each NIC in order: the ring to it, the ring from it
  int channel = -1;                  ///< descriptor of the Channel
  int doorbell = -1;                 ///< descriptor of the Doorbell
  std::vector<std::string> faults;   ///< as --fault takes them
  unsigned poll_us = 20;
  bool measure_turns = false;
  bool verbose = false;
};

/// The words of a command line that parse() makes these options of, the command's own first.
std::vector<std::string> to_words(const ProcessOptions& options);

/// The command, which no help shows.
CLI::App* add_process(CLI::App& app, ProcessOptions& options);

}  // namespace softhca::cli
