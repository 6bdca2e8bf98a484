// Trains: several packets of one message as one frame, as a NIC's segmentation offload is given.
//
// A train begins with the First packet of a message of SENDs, RDMA WRITEs or RDMA READ responses,
// or with a Middle, and Middle packets follow: their headers are those of the first but for the
// opcode, the PSN, the extended headers that only a First has, and the AckReq of the last. All are
// as long as the path MTU. A Last or Only packet travels for itself.
//
// A large send of Ethernet is a train, too: what is true of it says who makes it, as it brings the
// function that makes packets of it (ethernet/large_send.h).
//
// It is cut into packets where somebody needs packets, and these are, byte for byte, those that
// would have been sent one by one.
#pragma once

#include "wire/frame.h"
#include "wire/ib_packet.h"

namespace softhca::wire {

/// From a packet of a train to the one `count` packets behind it, in place. `left`: how many there
/// are from that one on, itself among them.
/// @pre `packet` was parsed from `train`; 0 < left
void advance(IbPacket& packet, const Frame& train, unsigned count, unsigned left);

/// Packet `index` of a train, which refers to the same memory.
/// @pre index < train.packets()
void cut(const Frame& train, unsigned index, Frame& packet);

/// The `count` packets of `train` from `index` on, as a train or as one packet.
/// @pre index + count <= train.packets(), 0 < count
void part(const Frame& train, unsigned index, unsigned count, Frame& out);

/// The same in place: `train` becomes its own part, and keeps the memory that it owns.
void keep_part(Frame& train, unsigned index, unsigned count);

/// Makes a train of the InfiniBand transport of `frame`, as it comes from elsewhere: its head,
/// which is that of the first packet and ends where the payload begins, and the payload of all,
/// with a tail for the CRCs, which are deferred. False, and the frame is good for nothing, if that
/// is none that anybody would send. `payload`: bytes in each. @pre frame.icrc() is kDeferred
bool couple(Frame& frame, std::uint16_t packets, std::uint16_t payload, bool ack_req_at_end);

/// Calls `visit(const Frame&)` with each packet of `frame`, which may be a train, in order.
template <class Visit>
void for_each_packet(const Frame& frame, Visit&& visit) {
  if (frame.packets() == 1) return visit(frame);
  Frame packet;
  for (unsigned i = 0; i != frame.packets(); ++i) {
    cut(frame, i, packet);
    visit(std::as_const(packet));
  }
}

}  // namespace softhca::wire
