// Changes of a frame on its way: a wrong bit, a congestion mark.
#pragma once

#include <cstdint>

#include "fabric/frame_facts.h"

namespace softhca::fabric {

/// Flips a bit of `part`, which `random` selects. The ICRC stays that of the right packet, and a
/// VCRC fits the wrong one, as behind a switch that has damaged it. The frame then owns its bytes.
/// False: the frame has no such part, and is unchanged.
/// @pre `facts` are those of `frame`
bool flip_bit(wire::Frame& frame, const FrameFacts& facts, FramePart part, std::uint64_t random);

/// Marks an IP packet as having met congestion (RFC 3168 5). False: it is none, its sender does not
/// allow it, or it is marked already.
/// @pre `facts` are those of `frame`
bool mark_congestion(wire::Frame& frame, const FrameFacts& facts);

}  // namespace softhca::fabric
