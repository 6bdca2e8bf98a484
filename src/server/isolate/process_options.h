// The start parameters of a process for some of a server's devices: options of a hidden command,
// and inherited descriptors.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace softhca::server {

struct ProcessOptions {
  std::vector<std::string> devices;  ///< as --device takes them
  std::vector<unsigned> places;      ///< position of each on the server's command line
  std::vector<int> listeners;        ///< descriptor of each device's listening socket
  std::vector<int> rings;            ///< for each NIC in order: the ring to it, the ring from it
  int channel = -1;                  ///< descriptor of the Channel
  int wake_socket = -1;              ///< descriptor of the os::WakeSocket
  std::vector<std::string> faults;   ///< as --fault takes them
  unsigned poll_us = 20;
  bool measure_turns = false;
  bool verbose = false;
};

/// The words of a command line that yields these options. The first one is the command.
std::vector<std::string> to_words(const ProcessOptions& options);

/// Declares the command, which no help shows.
CLI::App* add_process(CLI::App& app, ProcessOptions& options);

}  // namespace softhca::server
