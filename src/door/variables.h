// The environment variables of the library: those of the user (docs/run.md), and those that
// `softhca run` sets for its programs.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "door/card/frame_loss.h"
#include "door/tree/tree.h"
#include "util/log.h"

namespace softhca::door {

struct Variables {
  util::LogLevel log_level = util::LogLevel::kWarning;  ///< SOFTHCA_LOG
  bool traps_doorbells = true;                          ///< SOFTHCA_DOORBELLS
  bool enforces_memlock = false;                        ///< SOFTHCA_MEMLOCK
  DeviceNumbers numbers = {};                           ///< kDevicesVariable
  /// SOFTHCA_ADDRESS: OwnAddresses::take() of each device.
  std::vector<std::string> addresses = {};
  std::string control = {};  ///< SOFTHCA_CONTROL, a directory
  FrameLoss loss = {};       ///< SOFTHCA_LOSS
  std::string faults = {};   ///< SOFTHCA_FAULTS, a file of network rules (fabric/shared_faults.h)
  /// A line for each variable whose value is not allowed. Its default applies.
  std::vector<std::string> mistakes = {};
};

/// `get`: std::getenv(). An empty variable counts as one that is not set.
Variables read_variables(const std::function<const char*(const char*)>& get);
/// A line for each variable of `environment` (NAME=VALUE) whose name is close to one of softhca's.
std::vector<std::string> mistyped_names(const char* const* environment);

}  // namespace softhca::door
