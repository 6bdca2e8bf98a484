// The devices that programs of a run, or of an environment, see: --address, --devices, --device,
// --host-devices, --loss.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "door/tree/host_devices.h"
#include "util/result.h"

namespace softhca::cli {

/// As programs see them: those of the host, and ours, which are counted on from there.
struct ShownDevices {
  unsigned count = 1;  ///< of ours
  door::HostDevices host = {};

  /// The word for door::kDevicesVariable; empty: none is needed.
  std::string word() const;
};

struct SeenDevices {
  /// Of the devices of the first process, in their order, "if:NAME" for those of an interface;
  /// where there is none, it is made of the process's number.
  std::vector<std::string> addresses;
  unsigned devices = 0;             ///< that a program sees; 0: as many as there are models
  std::vector<std::string> models;  ///< of the devices; empty: connectx
  bool host_devices = false;        ///< programs see those of this host as well
  double loss = 0;                  ///< probability, of each frame of a device
  std::uint64_t loss_seed = 1;      ///< of which frames these are

  unsigned count() const;
  /// What is wrong with all of them together; empty if nothing.
  std::string check() const;
  /// Looks for those of the host now, if they are wanted. Fails if there are no numbers left for
  /// ours.
  util::Result<ShownDevices> shown() const;
  /// What the library is told of them, "NAME=value" each.
  std::vector<std::string> variables(const ShownDevices& shown) const;
};

/// Each option is checked by itself.
void add_device_options(CLI::App& command, SeenDevices& seen);

}  // namespace softhca::cli
