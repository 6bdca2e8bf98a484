// Reads the time for an object that needs it more than once per call.
#pragma once

#include <functional>

#include "util/clock.h"

namespace softhca::util {

/// monotonic_now, or the virtual clock of a test.
using TimeSource = std::function<Time()>;

}  // namespace softhca::util
