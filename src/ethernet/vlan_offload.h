// VLAN insertion (PRM 3.3.7). A tag is stripped as the frame is scattered, which leaves it out.
#pragma once

#include <cstdint>

#include "wire/ethernet.h"
#include "wire/frame.h"

namespace softhca::ethernet {

/// Inserts a tag behind the source address. False if the frame has no Ethernet header or its
/// head no room for four more bytes.
[[nodiscard]] bool insert_vlan(wire::Frame& frame, wire::EtherType tpid, std::uint16_t tci);

}  // namespace softhca::ethernet
