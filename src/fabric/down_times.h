// When a rule of link-down keeps a link down.
#pragma once

#include <optional>

#include "fabric/fault_rule.h"
#include "util/clock.h"

namespace softhca::fabric {

/// True if the link is down. `since`: how long ago it went down for the first time.
bool keeps_down(const FaultRule& rule, util::Duration since);
/// When that changes next, counted as `since` is; nothing: never.
std::optional<util::Duration> next_edge(const FaultRule& rule, util::Duration since);

}  // namespace softhca::fabric
