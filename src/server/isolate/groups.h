// Groups of devices that share a process under --isolate.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "server/device_spec.h"

namespace softhca::server {

/// Devices of one process, by position on the command line, ascending.
using DeviceGroup = std::vector<std::size_t>;

/// Groups devices. These share a process:
/// - devices of the same guest (`guests`, by device; empty: not given);
/// - a VF and its PF;
/// - SDXI functions without a guest, since they share keys.
/// Any other device gets its own process. @pre check_together() succeeded
std::vector<DeviceGroup> group_devices(const std::vector<DeviceSpec>& specs,
                                       const std::vector<std::string>& guests);

}  // namespace softhca::server
