// `softhca serve`: devices on vfio-user sockets, joined by a switch for each --port name.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "run/capture.h"
#include "util/result.h"

namespace softhca::server {

struct ServeOptions : run::CaptureOptions {
  std::vector<std::string> devices;  ///< as --device takes them
  std::vector<std::string> sockets;  ///< paths, one for each device
  std::vector<std::string> ports;    ///< fabric of each device; further devices use the last one
  std::string socket_mode = "0600";  ///< permissions of the sockets, octal
  std::string socket_group;          ///< name of their group; empty: the process's
  std::string control;               ///< path of the control socket; empty: none
  std::vector<std::string> faults;   ///< rules, as --fault takes them
  bool infiniband = false;           ///< link of devices that support both, by default
  double loss = 0;                   ///< probability for each frame of a device
  std::uint64_t loss_seed = 1;       ///< of the random choice
  std::string trace;                 ///< file to trace to; empty: none
  std::uint32_t poll_us = 20;        ///< see os::AdaptivePoll
  bool measure_turns = false;        ///< time each turn, for inspect
  bool verbose = false;              ///< log every command
  bool isolate = false;              ///< a process for each guest
  std::string program = "/proc/self/exe";  ///< program of these processes
};

/// Runs until SIGINT or SIGTERM. Prints "ready" on stdout when all sockets listen.
util::Result<void> serve(const ServeOptions& options);

}  // namespace softhca::server
