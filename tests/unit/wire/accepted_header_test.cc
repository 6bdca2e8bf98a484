// A packet of a cached path must equal what IbPacket::parse gives, and no packet of another path
// may match it.

#include "wire/accepted_header.h"

#include <gtest/gtest.h>

#include <random>
#include <utility>

#include "wire/ib_header.h"

namespace softhca::wire {
namespace {

IbAddress address_of(Encapsulation encapsulation, bool ipv4, bool vlan) {
  IbAddress address;
  address.encapsulation = encapsulation;
  address.hop_limit = 64;
  if (address.is_ethernet()) {
    address.destination_mac = MacAddress::from_u64(0x020000000002);
    address.source_mac = MacAddress::from_u64(0x020000000001);
    if (encapsulation == Encapsulation::kRoceV2) address.udp_source_port = 0xc000;
    if (vlan) address.vlan_tci = 0x6064;
  } else {
    address.destination_lid = Lid(2);
    address.source_lid = Lid(1);
  }
  if (!address.is_global()) {
    address.hop_limit = 0;
    return address;
  }
  if (ipv4) {
    address.source_gid = Gid::from_ipv4(0x0a000001);
    address.destination_gid = Gid::from_ipv4(0x0a000002);
  } else {
    address.source_gid.bytes[0] = address.destination_gid.bytes[0] = std::byte{0xfe};
    address.destination_gid.bytes[15] = std::byte{1};
  }
  return address;
}

std::vector<IbAddress> all_addresses() {
  return {address_of(Encapsulation::kRoceV2, true, false),
          address_of(Encapsulation::kRoceV2, true, true),
          address_of(Encapsulation::kRoceV2, false, false),
          address_of(Encapsulation::kRoceV2, false, true),
          address_of(Encapsulation::kRoceV1, false, false),
          address_of(Encapsulation::kLocal, false, false),
          address_of(Encapsulation::kGlobal, false, false)};
}

const std::vector<std::byte> kPayload(5000, std::byte{7});

Frame frame_with(IbHeader& header, const Bth& bth, const ExtHeaders& ext, std::size_t payload) {
  Frame frame;
  header.emit(bth, ext, payload, frame);
  EXPECT_TRUE(frame.add_segment(std::span(kPayload).first(payload)));
  return frame;
}

Bth send_only() {
  Bth bth;
  bth.opcode = Opcode::RC_SEND_ONLY;
  return bth;
}

/// The extended headers that the packet has. The others are zero.
ExtHeaders present(const IbPacket& packet) {
  const auto& info = packet.info();
  ExtHeaders ext;
  if (info.has(ExtHeader::kDeth)) ext.deth = packet.ext.deth;
  if (info.has(ExtHeader::kXrcEth)) ext.xrceth = packet.ext.xrceth;
  if (info.has(ExtHeader::kReth)) ext.reth = packet.ext.reth;
  if (info.has(ExtHeader::kAtomicEth)) ext.atomic = packet.ext.atomic;
  if (info.has(ExtHeader::kAeth)) ext.aeth = packet.ext.aeth;
  if (info.has(ExtHeader::kAtomicAckEth)) ext.atomic_ack = packet.ext.atomic_ack;
  if (info.has(ExtHeader::kImmDt)) ext.immdt = packet.ext.immdt;
  if (info.has(ExtHeader::kIeth)) ext.ieth = packet.ext.ieth;
  return ext;
}

TEST(AcceptedHeader, GivesThePacketThatParsingGives) {
  std::mt19937 random(1);
  for (const auto& address : all_addresses()) {
    IbHeader header(address);
    AcceptedHeader seen;
    bool known = false;
    for (unsigned i = 0; i < 2000; ++i) {
      Bth bth;
      // Runs of one opcode, as in a connection.
      bth.opcode = Opcode(i % 8 != 0 ? 0x0a : random() % 256);
      if (!info(bth.opcode).defined) continue;
      bth.dest_qp = Qpn(0x1234);
      bth.psn = Psn(random());
      bth.ack_req = random() % 2 != 0;
      bth.solicited_event = random() % 16 == 0;
      ExtHeaders ext;
      ext.reth = {random(), RKey(static_cast<std::uint32_t>(random())), 100};
      ext.aeth = Aeth::ack(Msn(random()));
      ext.immdt.data = static_cast<std::uint32_t>(random());
      const auto frame = frame_with(header, bth, ext, random() % 4096);
      const auto expected = IbPacket::parse(frame);
      ASSERT_TRUE(expected);
      if (!std::exchange(known, true)) {
        ASSERT_FALSE(seen.matches(frame));
        seen.remember(frame, *expected);
      }
      ASSERT_TRUE(seen.matches(frame));
      const auto* packet = &seen.packet(frame);
      EXPECT_EQ(packet->address, expected->address);
      EXPECT_EQ(packet->bth, expected->bth);
      EXPECT_EQ(present(*packet), present(*expected));
      EXPECT_EQ(packet->network_offset, expected->network_offset);
      EXPECT_EQ(packet->payload_offset, expected->payload_offset);
      EXPECT_EQ(packet->payload_size, expected->payload_size);
    }
  }
}

TEST(AcceptedHeader, AnotherPathIsCheckedAgain) {
  for (const auto& address : all_addresses()) {
    IbHeader header(address);
    const auto frame = frame_with(header, send_only(), {}, 100);
    const auto packet = IbPacket::parse(frame);
    ASSERT_TRUE(packet);
    AcceptedHeader seen;
    EXPECT_FALSE(seen.matches(frame)) << "nothing was seen";
    seen.remember(frame, *packet);
    EXPECT_TRUE(seen.matches(frame));
    for (const auto& other : all_addresses()) {
      IbHeader anew(other);
      EXPECT_FALSE(seen.matches(frame_with(anew, send_only(), {}, 100)));
    }
  }
}

TEST(AcceptedHeader, AFrameThatWasOutsideIsCheckedAgain) {
  IbHeader header(all_addresses()[0]);
  auto frame = frame_with(header, send_only(), {}, 100);
  const auto packet = IbPacket::parse(frame);
  ASSERT_TRUE(packet);
  AcceptedHeader seen;
  seen.remember(frame, *packet);
  std::vector<std::byte> bytes(frame.size());
  frame.copy_to(bytes);
  const auto outside = Frame::from_bytes(bytes);
  EXPECT_FALSE(seen.matches(outside));
  EXPECT_TRUE(seen.matches(frame)) << "its bytes were looked at, and not changed";
  frame.mutable_head()[0] ^= std::byte{1};
  EXPECT_FALSE(seen.matches(frame)) << "its bytes have changed";
  seen.remember(outside, *IbPacket::parse(outside));
  EXPECT_FALSE(seen.matches(outside)) << "its CRC is to be checked";
}

}  // namespace
}  // namespace softhca::wire
