// Packets of InfiniBand links, with LRH and both CRCs, and RoCE v1.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "frame_bytes.h"
#include "hex.h"
#include "ib_packets.h"
#include "vectors.h"
#include "wire/ib_header.h"
#include "wire/vcrc.h"

namespace softhca::wire {
namespace {

using testing::Optional;

TEST(InfinibandPacket, ReadsALocalPacket) {
  const auto bytes = from_hex(vectors::kLocalWriteOnly);
  const auto packet = IbPacket::parse(Frame::from_bytes(bytes, Link::kInfiniband));
  ASSERT_TRUE(packet) << to_string(packet.error());
  EXPECT_EQ(packet->address.encapsulation, Encapsulation::kLocal);
  EXPECT_EQ(packet->address.virtual_lane, 7);
  EXPECT_EQ(packet->address.service_level, 1);
  EXPECT_EQ(packet->address.destination_lid, Lid(0x375c));
  EXPECT_EQ(packet->address.source_lid, Lid(0x17d2));
  EXPECT_EQ(packet->bth.opcode, Opcode::RC_RDMA_WRITE_ONLY);
  EXPECT_EQ(packet->bth.pkey, 0x2487);
  EXPECT_EQ(packet->bth.dest_qp, Qpn(0x87b1b3));
  EXPECT_EQ(packet->ext.reth, (Reth{0x01710a1c015d4002, RKey(0x38f27a05), 14}));
  EXPECT_EQ(packet->payload_size, 14);
}

TEST(InfinibandPacket, ReadsAGlobalPacket) {
  const auto bytes = from_hex(vectors::kGlobalSendOnlyImmediate);
  const auto packet = IbPacket::parse(Frame::from_bytes(bytes, Link::kInfiniband));
  ASSERT_TRUE(packet) << to_string(packet.error());
  EXPECT_EQ(packet->address.encapsulation, Encapsulation::kGlobal);
  EXPECT_EQ(packet->address.source_lid, Lid(0x34));
  EXPECT_EQ(packet->address.flow_label, 0x12345u);
  EXPECT_EQ(packet->address.hop_limit, 3);
  EXPECT_EQ(packet->ext.immdt.data, 0xcafef00du);
  EXPECT_EQ(packet->payload_size, 1);
}

TEST(InfinibandPacket, ReadsRoceV1) {
  const auto bytes = from_hex(vectors::kRoceV1UdSendOnly);
  const auto packet = IbPacket::parse(Frame::from_bytes(bytes));
  ASSERT_TRUE(packet) << to_string(packet.error());
  EXPECT_EQ(packet->address.encapsulation, Encapsulation::kRoceV1);
  EXPECT_THAT(packet->address.vlan_tci, Optional(0x6064));
  EXPECT_EQ(packet->ext.deth.src_qp, Qpn(1));
  EXPECT_EQ(packet->payload_size, 8);
}

// IBTA 7.8.2: the VCRC covers all, so a link finds any corruption.
TEST(InfinibandPacket, AnyChangedBitIsFound) {
  for (const auto hex : vectors::kInfiniband) {
    const auto good = from_hex(hex);
    for (std::size_t at = 0; at != good.size(); ++at) {
      for (unsigned bit = 0; bit != 8; ++bit) {
        auto bad = good;
        bad[at] ^= std::byte(1u << bit);
        EXPECT_FALSE(IbPacket::parse(Frame::from_bytes(bad, Link::kInfiniband))) << at;
      }
    }
  }
}

/// The error of a packet with one byte changed and a corrected VCRC.
PacketError error_behind_vcrc(std::string_view hex, std::size_t at, unsigned flip) {
  auto bytes = from_hex(hex);
  bytes[at] ^= std::byte(flip);
  const auto covered = bytes.size() - kVcrcSize;
  util::store_le16(&bytes[covered], vcrc_of(std::span(bytes).first(covered)));
  const auto packet = IbPacket::parse(Frame::from_bytes(bytes, Link::kInfiniband));
  return packet ? PacketError::kOther : packet.error();
}

// IBTA 7.8.1: switches change the VL, routers the whole LRH and parts of the GRH.
TEST(InfinibandPacket, IcrcLeavesOutWhatSwitchesAndRoutersChange) {
  EXPECT_EQ(error_behind_vcrc(vectors::kLocalWriteOnly, 0, 0x30), PacketError::kOther) << "VL";
  EXPECT_EQ(error_behind_vcrc(vectors::kLocalWriteOnly, 1, 0x20), PacketError::kIcrc) << "SL";
  EXPECT_EQ(error_behind_vcrc(vectors::kLocalWriteOnly, 3, 1), PacketError::kIcrc) << "DLID";
  EXPECT_EQ(error_behind_vcrc(vectors::kLocalWriteOnly, 20, 1), PacketError::kIcrc) << "RETH";
  EXPECT_EQ(error_behind_vcrc(vectors::kGlobalSendOnlyImmediate, 1, 0x20), PacketError::kOther);
  EXPECT_EQ(error_behind_vcrc(vectors::kGlobalSendOnlyImmediate, 3, 1), PacketError::kOther);
  EXPECT_EQ(error_behind_vcrc(vectors::kGlobalSendOnlyImmediate, 15, 1), PacketError::kOther)
      << "hop limit";
  EXPECT_EQ(error_behind_vcrc(vectors::kGlobalSendOnlyImmediate, 20, 1), PacketError::kIcrc)
      << "SGID";
}

TEST(InfinibandPacket, GivesTheReasonOfARefusal) {
  EXPECT_EQ(error_behind_vcrc(vectors::kLocalWriteOnly, 0, 1), PacketError::kLinkVersion);
  EXPECT_EQ(error_behind_vcrc(vectors::kLocalWriteOnly, 5, 1), PacketError::kLinkLength);
  EXPECT_EQ(error_behind_vcrc(vectors::kGlobalSendOnlyImmediate, 8, 0x10), PacketError::kGrh);
  EXPECT_EQ(error_behind_vcrc(vectors::kGlobalSendOnlyImmediate, 14, 1), PacketError::kGrh);
  EXPECT_EQ(error_behind_vcrc(vectors::kGlobalSendOnlyImmediate, 13, 4), PacketError::kGrhLength);
  auto bytes = from_hex(vectors::kRoceV1UdSendOnly);
  bytes.pop_back();
  EXPECT_EQ(error_of(bytes), PacketError::kGrhLength);
  for (const auto hex : vectors::kInfiniband) {
    const auto whole = from_hex(hex);
    for (std::size_t size = 0; size != whole.size(); ++size) {
      const auto prefix = std::span(whole).first(size);
      EXPECT_FALSE(IbPacket::parse(Frame::from_bytes(prefix, Link::kInfiniband)));
    }
  }
}

TEST(InfinibandPacket, DeferredCrcsAreMadeInPlaceAsInACopy) {
  const auto bytes = from_hex(vectors::kLocalWriteOnly);
  const auto packet = IbPacket::parse(Frame::from_bytes(bytes, Link::kInfiniband));
  Frame frame;
  IbHeader(packet->address).emit(packet->bth, packet->ext, 14, frame);
  ASSERT_TRUE(frame.add_segment(std::span(bytes).subspan(36, 14)));
  EXPECT_EQ(bytes_of(frame), bytes);
  frame.compute_icrc();
  EXPECT_EQ(bytes_of(frame), bytes);
}

}  // namespace
}  // namespace softhca::wire
