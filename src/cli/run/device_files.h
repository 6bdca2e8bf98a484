// The files that libraries look for: /sys and /dev as a run shows them.
#pragma once

#include <string>

#include "util/result.h"

namespace softhca::cli {

/// Writes them below `directory`/root.
util::Result<void> write_device_files(const std::string& directory);

}  // namespace softhca::cli
