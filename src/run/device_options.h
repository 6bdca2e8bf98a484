// The devices that programs of a run or of an environment see: --address, --devices, --device,
// --host-devices, --loss.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "door/tree/host_devices.h"
#include "util/result.h"

namespace CLI {
class App;
}

namespace softhca::run {

/// The devices shown to programs: the host's, then softhca's with the following numbers.
struct ShownDevices {
  unsigned count = 1;  ///< softhca's devices
  door::HostDevices host = {};

  /// The word for door::kDevicesVariable; empty: none is needed.
  std::string word() const;
  /// Those of softhca's devices: "mlx5_0", "mlx5_1", ...
  std::vector<std::string> names() const;
};

struct DeviceOptions {
  /// Addresses of the first process's devices, in order; "if:NAME" for those of an interface.
  /// Devices without one derive it from the process's number.
  std::vector<std::string> addresses = {};
  unsigned devices = 0;                  ///< that a program sees; 0: as many as models
  std::vector<std::string> models = {};  ///< of the devices; empty: connectx
  bool host_devices = false;             ///< programs see this host's devices too
  double loss = 0;                       ///< probability for each frame of a device
  std::uint64_t loss_seed = 1;           ///< of the random choice

  unsigned count() const;
  /// Checks all options together. Returns an error message, or an empty string.
  std::string check() const;
  /// Finds the host's devices if they are wanted. Fails if they leave no numbers for softhca's.
  util::Result<ShownDevices> shown() const;
  /// Environment variables for the library, "NAME=value" each.
  std::vector<std::string> variables(const ShownDevices& shown) const;
};

/// Declares the options, each with its own check.
void add_device_options(CLI::App& command, DeviceOptions& seen);

}  // namespace softhca::run
