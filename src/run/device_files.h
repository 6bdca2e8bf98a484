// The files in /sys and /dev that libraries look for, as a run shows them.
#pragma once

#include <string>

#include "run/device_options.h"
#include "util/result.h"

namespace softhca::run {

/// Writes the files of one device to `directory`/root, and those of other sets of devices to
/// `directory`/root-<their word>. Existing ones are kept: the runs of a fabric share them.
util::Result<void> write_device_files(const std::string& directory,
                                      const ShownDevices& devices = {});

}  // namespace softhca::run
