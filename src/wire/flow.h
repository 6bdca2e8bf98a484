// Flow ids. Frames with the same id have equal headers, except for fields that differ from packet
// to packet: lengths, checksums, sequence numbers, and those above UDP or a GRH. A sender gives a
// frame its id (Frame::flow()); a receiver in the same process finds what it knows of the flow by
// the id.
//
// Two kinds of senders assign ids: a path of the InfiniBand transport (IbHeader), and a cached flow
// of Ethernet frames (ethernet::FlowHeaders). No id is of both kinds.
#pragma once

#include <cstdint>

namespace softhca::wire {

/// 0: no flow, or not known.
using FlowId = std::uint64_t;

/// An id that no other flow of this process has. Devices may run in different threads.
FlowId new_flow();

}  // namespace softhca::wire
