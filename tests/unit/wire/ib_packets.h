// Helpers for tests of InfiniBand packets.
#pragma once

#include <gtest/gtest.h>

#include <span>

#include "wire/ib_header.h"

namespace softhca::wire {

/// The parse error of a frame that must not be RoCE.
inline PacketError error_of(std::span<const std::byte> bytes) {
  const auto packet = IbPacket::parse(Frame::from_bytes(bytes));
  EXPECT_FALSE(packet);
  return packet ? PacketError::kOther : packet.error();
}

inline IbAddress ipv4_address() {
  IbAddress address;
  address.destination_mac = MacAddress::from_u64(0x020000000002);
  address.source_mac = MacAddress::from_u64(0x020000000001);
  address.source_gid = Gid::from_ipv4(0x0a000001);
  address.destination_gid = Gid::from_ipv4(0x0a000002);
  address.hop_limit = 64;
  address.udp_source_port = 0xc000;
  return address;
}

}  // namespace softhca::wire
