// Values of network rules as text: addresses, opcodes, rates, sizes.
#pragma once

#include <bitset>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "fabric/fault_rule.h"

namespace softhca::fabric {

/// A MAC, an IPv4 or IPv6 address (or GID), or the LID of an InfiniBand link.
std::optional<FrameAddress> parse_address(std::string_view text);
std::string address_text(const FrameAddress& address);

/// The opcodes of a name of IBTA 9.2.1, or of a group. Nothing: there is no such name.
std::optional<std::bitset<256>> find_opcodes(std::string_view name);
/// The names of the groups, separated by commas.
const std::string& opcode_groups();

/// "100mbit": bits per second.
std::optional<std::uint64_t> parse_rate(std::string_view text);
std::string rate_text(std::uint64_t rate);

/// "64K": bytes.
std::optional<std::uint64_t> parse_size(std::string_view text);
std::string size_text(std::uint64_t bytes);

/// More than 0, at most 1.
std::optional<double> parse_probability(std::string_view text);

}  // namespace softhca::fabric
