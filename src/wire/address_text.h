// Addresses as users write them.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "wire/gid.h"
#include "wire/mac_address.h"

namespace softhca::wire {

/// "02:00:00:00:00:01"
std::string text_of(const MacAddress& mac);
std::optional<MacAddress> parse_mac(std::string_view text);

/// "10.0.0.1" or "2001:db8::1" (RFC 5952)
std::string text_of(const Gid& gid);
/// The GID of an IPv4 or IPv6 address.
std::optional<Gid> parse_ip(std::string_view text);
/// The GID of an IPv4 address.
std::optional<Gid> parse_ipv4(std::string_view text);

}  // namespace softhca::wire
