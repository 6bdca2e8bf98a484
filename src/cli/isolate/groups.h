// Which devices of a server share a process under --isolate.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "cli/device_spec.h"

namespace softhca::cli {

/// Devices of one process, by their places on the command line, ascending.
using DeviceGroup = std::vector<std::size_t>;

/// Together are: devices of the same guest (`guests`, by device; empty: not said); a VF and its PF;
/// and SDXI functions of which no guest is said, since they share keys. Any other device has a
/// process of its own. @pre check_together() was good
std::vector<DeviceGroup> group_devices(const std::vector<DeviceSpec>& specs,
                                       const std::vector<std::string>& guests);

}  // namespace softhca::cli
