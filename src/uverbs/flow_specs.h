// The specifications of a flow, as ibv_create_flow has them (Linux: ib_user_verbs.h), as what the
// device compares.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "uverbs/flow_rules.h"

namespace softhca::uverbs {

/// All frames to groups.
void match_multicast(FlowMatch& match);
/// A specification. The value of an action has what it is told; no action has a mask.
struct FlowSpec {
  std::uint32_t type = 0;
  std::span<const std::byte> value, mask;
};
/// Reads `count` specifications out of `bytes`, of which they are parts.
Errno read_flow_specs(std::span<const std::byte> bytes, unsigned count,
                      std::vector<FlowSpec>& specs);
/// `counters`: the handle of those that count, if there is one.
Errno apply_flow_specs(std::span<const FlowSpec> specs, FlowRule& rule,
                       std::optional<std::uint32_t>& counters);

}  // namespace softhca::uverbs
