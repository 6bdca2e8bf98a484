// VLAN insertion and stripping (PRM 3.3.7).
#pragma once

#include <cstdint>
#include <optional>

#include "wire/ethernet.h"
#include "wire/frame.h"

namespace softhca::ethernet {

/// Removes the outer 802.1Q tag and gives its TCI; nothing if there is none.
std::optional<std::uint16_t> strip_vlan(wire::Frame& frame);

/// Inserts a tag behind the source address. False if the frame has no Ethernet header or its
/// head no room for four more bytes.
[[nodiscard]] bool insert_vlan(wire::Frame& frame, wire::EtherType tpid, std::uint16_t tci);

}  // namespace softhca::ethernet
