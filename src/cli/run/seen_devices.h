// The devices that programs of a run, or of an environment, see: --address, --devices, --device.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace softhca::cli {

struct SeenDevices {
  /// Of the devices of the first process, in their order, "if:NAME" for those of an interface;
  /// where there is none, it is made of the process's number.
  std::vector<std::string> addresses;
  unsigned devices = 0;             ///< that a program sees; 0: as many as there are models
  std::vector<std::string> models;  ///< of the devices; empty: connectx

  unsigned count() const;
  /// What is wrong with all of them together; empty if nothing.
  std::string check() const;
  /// What the library is told of them, "NAME=value" each.
  std::vector<std::string> variables() const;
};

/// Each option is checked by itself.
void add_device_options(CLI::App& command, SeenDevices& seen);

}  // namespace softhca::cli
