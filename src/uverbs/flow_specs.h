// The specifications of a flow, as ibv_create_flow has them (Linux: ib_user_verbs.h), as what the
// device compares.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "uverbs/flow_rules.h"

namespace softhca::uverbs {

/// All frames to groups.
void match_multicast(FlowMatch& match);
/// Reads `count` specifications out of `bytes`. EOPNOTSUPP: the device compares no such thing.
/// `counters`: the handle of those that count, if there is one.
Errno read_flow_specs(std::span<const std::byte> bytes, unsigned count, FlowRule& rule,
                      std::optional<std::uint32_t>& counters);

}  // namespace softhca::uverbs
