// Translates the specifications of ibv_create_flow (Linux: ib_user_verbs.h) into the match that the
// device compares.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "uverbs/flow_rules.h"

namespace softhca::uverbs {

inline constexpr std::uint32_t kTagMax = 0xffffff;

/// Matches all multicast frames, or all others.
void match_group_bit(FlowMatch& match, bool is_group);
/// One specification. The value of an action is its argument; an action has no mask.
struct FlowSpec {
  std::uint32_t type = 0;
  std::span<const std::byte> value, mask;
};
/// Parses `count` specifications. They refer to `bytes`.
Errno read_flow_specs(std::span<const std::byte> bytes, unsigned count,
                      std::vector<FlowSpec>& specs);
/// `counters`: the handle of the flow's counters, if it has any.
Errno apply_flow_specs(std::span<const FlowSpec> specs, FlowRule& rule,
                       std::optional<std::uint32_t>& counters);
/// Whether no unicast frame matches, as far as flow_is_multicast_only of mlx5_ib looks.
bool is_for_groups(std::span<const FlowSpec> specs);

}  // namespace softhca::uverbs
