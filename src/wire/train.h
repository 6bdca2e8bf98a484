// Trains: several packets of one message as one frame, like the input of a NIC's segmentation
// offload.
//
// A train begins with the First packet of a message of SENDs, RDMA WRITEs or RDMA READ responses,
// or with a Middle; Middle packets follow. Their headers differ from the first's in the opcode, the
// PSN, the extended headers that only a First has, and the AckReq of the last. All are as long as
// the path MTU. A Last or Only packet travels alone.
//
// A large send of Ethernet is a train, too. The rules for its packets are those of the function
// that it carries, which makes them (ethernet/large_send.h).
//
// A train is split where packets are needed. The packets are, byte for byte, those that would have
// been sent one by one.
#pragma once

#include "wire/frame.h"
#include "wire/ib_packet.h"

namespace softhca::wire {

/// Changes a packet of a train, in place, into the one `count` packets later. `left`: number of
/// packets from that one on, including it.
/// @pre `packet` was parsed from `train`; 0 < left
void advance(IbPacket& packet, const Frame& train, unsigned count, unsigned left);

/// Makes packet `index` of a train, which refers to the same memory.
/// @pre index < train.packets()
void cut(const Frame& train, unsigned index, Frame& packet);

/// Makes the `count` packets of `train` from `index` on, as a train or as one packet.
/// @pre index + count <= train.packets(), 0 < count
void part(const Frame& train, unsigned index, unsigned count, Frame& out);

/// The same in place: `train` becomes its own part, and keeps the memory that it owns.
void keep_part(Frame& train, unsigned index, unsigned count);

/// Makes a train of the InfiniBand transport from `frame`, which another process sent. Its head is
/// that of the first packet and ends where the payload begins; then follow the payload of all
/// packets, and a tail for the deferred CRCs. If no sender would make such a train, returns false,
/// and the frame is unusable. `payload`: bytes per packet. @pre frame.icrc() is kDeferred
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
