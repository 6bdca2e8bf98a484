// Headers of InfiniBand packets, written and read again.
#include "wire/ib_header.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "frame_bytes.h"
#include "hex.h"
#include "ib_packets.h"
#include "vectors.h"

namespace softhca::wire {
namespace {

class IbHeaderTest : public testing::Test {
 protected:
  std::uint32_t random(unsigned bits) {
    return static_cast<std::uint32_t>(engine_() >> (64 - bits));
  }
  Gid random_ipv6() {
    Gid gid;
    for (auto& byte : gid.bytes) byte = std::byte(random(8));
    gid.bytes[0] = std::byte{0x20};
    return gid;
  }
  IbAddress random_address() {
    IbAddress address;
    address.encapsulation = Encapsulation(random(2));
    if (address.is_ethernet()) {
      address.destination_mac = MacAddress::from_u64(engine_() >> 16);
      address.source_mac = MacAddress::from_u64(engine_() >> 16);
      if (random(1)) address.vlan_tci = random(16);
    } else {
      address.destination_lid = Lid(static_cast<std::uint16_t>(random(16)));
      address.source_lid = Lid(static_cast<std::uint16_t>(random(16)));
      address.service_level = static_cast<std::uint8_t>(random(4));
      address.virtual_lane = static_cast<std::uint8_t>(random(4));
    }
    if (!address.is_global()) return address;
    const bool v2 = address.encapsulation == Encapsulation::kRoceV2;
    const bool ipv4 = v2 && random(1) != 0;
    address.source_gid = ipv4 ? Gid::from_ipv4(random(32)) : random_ipv6();
    address.destination_gid = ipv4 ? Gid::from_ipv4(random(32)) : random_ipv6();
    address.traffic_class = static_cast<std::uint8_t>(random(8));
    if (!ipv4) address.flow_label = random(20);
    address.hop_limit = static_cast<std::uint8_t>(random(8));
    if (v2) address.udp_source_port = static_cast<std::uint16_t>(random(16));
    return address;
  }
  Bth random_bth(Opcode opcode) {
    Bth bth;
    bth.opcode = opcode;
    bth.solicited_event = random(1) != 0;
    bth.mig_req = random(1) != 0;
    bth.pkey = static_cast<std::uint16_t>(random(16));
    bth.fecn = random(1) != 0;
    bth.becn = random(1) != 0;
    bth.dest_qp = Qpn(random(24));
    bth.ack_req = random(1) != 0;
    bth.psn = Psn(random(24));
    return bth;
  }
  /// Sets only the headers that the opcode has.
  ExtHeaders random_ext(Opcode opcode) {
    const auto& has = info(opcode);
    ExtHeaders ext;
    if (has.has(ExtHeader::kDeth)) ext.deth = {QKey(random(32)), Qpn(random(24))};
    if (has.has(ExtHeader::kXrcEth)) ext.xrceth = {XrcSrqn(random(24))};
    if (has.has(ExtHeader::kReth)) ext.reth = {engine_(), RKey(random(32)), random(32)};
    if (has.has(ExtHeader::kAtomicEth)) ext.atomic = {engine_(), RKey(random(32)), engine_(), 5};
    if (has.has(ExtHeader::kAeth)) ext.aeth = Aeth::rnr_nak(Msn(random(24)), 3);
    if (has.has(ExtHeader::kAtomicAckEth)) ext.atomic_ack = {engine_()};
    if (has.has(ExtHeader::kImmDt)) ext.immdt = {random(32)};
    if (has.has(ExtHeader::kIeth)) ext.ieth = {RKey(random(32))};
    return ext;
  }

  std::mt19937_64 engine_{1};
};

TEST_F(IbHeaderTest, EmittedHeadersParseToTheSameForEveryOpcode) {
  std::vector<std::byte> payload(5000);
  for (auto& byte : payload) byte = std::byte(random(8));
  for (int round = 0; round != 40; ++round) {
    const auto address = random_address();
    IbHeader header(address);
    for (int opcode = 0; opcode != 256; ++opcode) {
      if (!info(Opcode(opcode)).defined) continue;
      auto bth = random_bth(Opcode(opcode));
      const auto ext = random_ext(Opcode(opcode));
      const auto size = random(12);
      Frame frame;
      header.emit(bth, ext, size, frame);
      ASSERT_EQ(frame.head().size(), header.size(Opcode(opcode)));
      ASSERT_TRUE(frame.add_segment(std::span(payload).first(size)));
      bth.pad_count = static_cast<std::uint8_t>((4 - size % 4) % 4);

      const auto check = [&](const tl::expected<IbPacket, PacketError>& packet) {
        ASSERT_TRUE(packet) << to_string(packet.error());
        EXPECT_EQ(packet->address, address);
        EXPECT_EQ(packet->bth, bth);
        EXPECT_EQ(packet->ext, ext);
        EXPECT_EQ(packet->payload_size, size);
      };
      check(IbPacket::parse(frame));  // from device to device in this process
      const auto bytes = bytes_of(frame);
      check(IbPacket::parse(Frame::from_bytes(bytes, frame.link())));  // as bytes from the wire
    }
  }
}

TEST_F(IbHeaderTest, WritesWhatScapyWrites) {
  auto address = ipv4_address();
  address.traffic_class = 2;
  address.udp_source_port = 0xc123;
  Bth bth;
  bth.opcode = Opcode::RC_RDMA_WRITE_ONLY;
  bth.mig_req = true;
  bth.dest_qp = Qpn(0x1234);
  bth.ack_req = true;
  bth.psn = Psn(0xabcdef);
  ExtHeaders ext;
  ext.reth = {0x123456789abc, RKey(0xdeadbeef), 11};
  Frame frame;
  IbHeader(address).emit(bth, ext, 11, frame);
  const std::string_view payload = "hello world";
  ASSERT_TRUE(frame.add_segment(std::as_bytes(std::span(payload))));
  EXPECT_EQ(bytes_of(frame), from_hex(vectors::kRdmaWriteOnly));
}

TEST_F(IbHeaderTest, LargestPacketFitsTheHead) {
  IbAddress address;
  address.vlan_tci = 1;
  address.source_gid = address.destination_gid = random_ipv6();
  for (const auto& opcode : kOpcodes) {
    if (!opcode.defined) continue;
    EXPECT_LE(IbHeader(address).size(Opcode(&opcode - kOpcodes.data())), Frame::kHeadCapacity);
  }
}

TEST_F(IbHeaderTest, AFramePresentIcrcIsChecked) {
  Frame frame;
  Bth bth;
  bth.opcode = Opcode::RC_SEND_ONLY;
  IbHeader(ipv4_address()).emit(bth, {}, 0, frame);
  EXPECT_TRUE(IbPacket::parse(frame)) << "deferred: not checked";
  frame.set_icrc(Frame::Icrc::kPresent);
  const auto packet = IbPacket::parse(frame);
  ASSERT_FALSE(packet);
  EXPECT_EQ(packet.error(), PacketError::kIcrc);
}

TEST_F(IbHeaderTest, UdReceivesTheIpHeaderInPlaceOfTheGrh) {
  std::array<std::byte, 40> grh;
  auto bytes = from_hex(vectors::kUdSendOnly);
  auto frame = Frame::from_bytes(bytes);
  emit_ud_grh(frame, *IbPacket::parse(frame), grh);
  EXPECT_EQ(std::vector(grh.begin(), grh.begin() + 20), std::vector<std::byte>(20));
  EXPECT_TRUE(std::equal(grh.begin() + 20, grh.end(), bytes.begin() + 14));

  bytes = from_hex(vectors::kSendOnlyImmediateIpv6);
  frame = Frame::from_bytes(bytes);
  emit_ud_grh(frame, *IbPacket::parse(frame), grh);
  EXPECT_TRUE(std::equal(grh.begin(), grh.end(), bytes.begin() + 14));
}

TEST_F(IbHeaderTest, UdReceivesTheGrhIfThereIsOne) {
  std::array<std::byte, 40> grh;
  auto bytes = from_hex(vectors::kRoceV1UdSendOnly);
  auto frame = Frame::from_bytes(bytes);
  EXPECT_TRUE(emit_ud_grh(frame, *IbPacket::parse(frame), grh));
  EXPECT_TRUE(std::equal(grh.begin(), grh.end(), bytes.begin() + 18));
  bytes = from_hex(vectors::kLocalWriteOnly);
  frame = Frame::from_bytes(bytes, Link::kInfiniband);
  EXPECT_FALSE(emit_ud_grh(frame, *IbPacket::parse(frame), grh));
}

}  // namespace
}  // namespace softhca::wire
