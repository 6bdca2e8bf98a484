// VLAN insertion (PRM 3.3.7). A tag is stripped by omitting it when the frame is scattered.
#pragma once

#include <cstdint>

#include "wire/ethernet.h"
#include "wire/frame.h"

namespace softhca::ethernet {

/// Inserts a tag behind the source address. False if the frame has no Ethernet header, or its head
/// has no room for four more bytes.
[[nodiscard]] bool insert_vlan(wire::Frame& frame, wire::EtherType tpid, std::uint16_t tci);

}  // namespace softhca::ethernet
