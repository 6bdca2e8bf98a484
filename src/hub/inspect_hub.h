// A hub's counters for `softhca inspect`.
#pragma once

#include "hub/hub.h"
#include "util/inspect.h"

namespace softhca::hub {

void inspect(const Hub& hub, util::InspectNode& out);

}  // namespace softhca::hub
