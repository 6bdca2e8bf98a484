// The files that libraries look for: /sys and /dev as a run shows them.
#pragma once

#include <string>

#include "cli/run/seen_devices.h"
#include "util/result.h"

namespace softhca::cli {

/// Writes those of one device below `directory`/root, and those of others below
/// `directory`/root-<word of devices>, unless they are there: the runs of a fabric share them.
util::Result<void> write_device_files(const std::string& directory,
                                      const ShownDevices& devices = {});

}  // namespace softhca::cli
