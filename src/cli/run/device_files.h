// The files that libraries look for: /sys and /dev as a run shows them.
#pragma once

#include <string>

#include "util/result.h"

namespace softhca::cli {

/// Writes those of one device below `directory`/root, and those of more below
/// `directory`/root-<devices>, unless they are there: the runs of a fabric share them.
util::Result<void> write_device_files(const std::string& directory, unsigned devices = 1);

}  // namespace softhca::cli
