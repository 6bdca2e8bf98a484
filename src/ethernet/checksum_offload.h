// Checksum offload of IPv4, TCP and UDP (PRM 3.3.1).
#pragma once

#include <cstdint>

#include "ethernet/packet_info.h"
#include "wire/frame.h"

namespace softhca::ethernet {

/// Puts the IPv4 header checksum in its place, whatever stands there. Nothing happens to other
/// frames.
void insert_l3_checksum(wire::Frame& frame, const PacketInfo& info);

/// Puts the TCP or UDP checksum in its place. PRM 3.3.1: "the device does not require any pseudo
/// header checksum calculation, and the value placed in TCP/UDP checksum is ignored". Nothing
/// happens to fragments and to source-routed packets, which the device does not support.
void insert_l4_checksum(wire::Frame& frame, const PacketInfo& info);

struct ReceivedChecksum {
  bool l3_ok = false;  ///< an IP header that is right; IPv6 has no checksum to be wrong
  bool l4_ok = false;  ///< a TCP or UDP checksum that is right, or a UDP/IPv4 one that is 0: absent
  /// PRM 3.3.1 Table 4: the ones-complement sum from the IP header to the end of the IP packet. 0
  /// if the frame is not IP. Not inverted.
  std::uint16_t sum = 0;
};

/// @pre the frame's ICRC is not deferred, for its bytes count: see Frame::compute_icrc()
ReceivedChecksum check(const wire::Frame& frame, const PacketInfo& info);

}  // namespace softhca::ethernet
