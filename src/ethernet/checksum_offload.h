// Checksum offload of IPv4, TCP and UDP (PRM 3.3.1).
#pragma once

#include <cstdint>

#include "ethernet/packet_info.h"
#include "wire/frame.h"

namespace softhca::ethernet {

/// Inserts the IPv4 header checksum, whatever the field holds. Other frames are not changed.
void insert_l3_checksum(wire::Frame& frame, const PacketInfo& info);

/// Inserts the TCP or UDP checksum. PRM 3.3.1: "the device does not require any pseudo header
/// checksum calculation, and the value placed in TCP/UDP checksum is ignored". Fragments and
/// source-routed packets, which the device does not support, are not changed.
void insert_l4_checksum(wire::Frame& frame, const PacketInfo& info);

struct ReceivedChecksum {
  bool l3_ok = false;  ///< a correct IP header; IPv6 has no checksum to fail
  bool l4_ok = false;  ///< a correct TCP or UDP checksum, or an absent UDP/IPv4 one (0)
  /// PRM 3.3.1 Table 4: the ones-complement sum from the IP header to the end of the IP packet. 0
  /// if the frame is not IP. Not inverted.
  std::uint16_t sum = 0;
};

/// @pre the frame's ICRC is not deferred, because its bytes are summed: see Frame::compute_icrc()
ReceivedChecksum check(const wire::Frame& frame, const PacketInfo& info);

}  // namespace softhca::ethernet
