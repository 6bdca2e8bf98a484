#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <set>
#include <string>

#include "frame_bytes.h"
#include "hex.h"
#include "vectors.h"
#include "wire/ib_header.h"
#include "wire/icrc.h"
#include "wire/vcrc.h"

namespace softhca::wire {
namespace {

using testing::Optional;

/// The parse error of a frame that must not be RoCE.
PacketError error_of(std::span<const std::byte> bytes) {
  const auto packet = IbPacket::parse(Frame::from_bytes(bytes));
  EXPECT_FALSE(packet);
  return packet ? PacketError::kOther : packet.error();
}

IbAddress ipv4_address() {
  IbAddress address;
  address.destination_mac = MacAddress::from_u64(0x020000000002);
  address.source_mac = MacAddress::from_u64(0x020000000001);
  address.source_gid = Gid::from_ipv4(0x0a000001);
  address.destination_gid = Gid::from_ipv4(0x0a000002);
  address.hop_limit = 64;
  address.udp_source_port = 0xc000;
  return address;
}

TEST(IbPacket, AcceptsPacketsWhoseIcrcOthersComputed) {
  for (const auto hex : vectors::kAll) {
    const auto bytes = from_hex(hex);
    const auto packet = IbPacket::parse(Frame::from_bytes(bytes));
    EXPECT_TRUE(packet) << hex << ": " << to_string(packet.error());
  }
}

TEST(IbPacket, ReadsACnpOfConnectX4Lx) {
  const auto bytes = from_hex(vectors::kCnpOfConnectX4Lx);
  const auto packet = IbPacket::parse(Frame::from_bytes(bytes));
  ASSERT_TRUE(packet);
  EXPECT_EQ(packet->bth.opcode, Opcode::CNP);
  EXPECT_TRUE(packet->bth.becn);
  EXPECT_EQ(packet->bth.dest_qp, Qpn(0x118));
  EXPECT_EQ(packet->payload_size, 16);
  EXPECT_EQ(packet->address.traffic_class, 0xc2);
}

TEST(IbPacket, ReadsAnRdmaWrite) {
  const auto bytes = from_hex(vectors::kRdmaWriteOnly);
  const auto frame = Frame::from_bytes(bytes);
  const auto packet = IbPacket::parse(frame);
  ASSERT_TRUE(packet);
  EXPECT_EQ(packet->bth.opcode, Opcode::RC_RDMA_WRITE_ONLY);
  EXPECT_EQ(packet->bth.psn, Psn(0xabcdef));
  EXPECT_EQ(packet->bth.dest_qp, Qpn(0x1234));
  EXPECT_TRUE(packet->bth.ack_req);
  EXPECT_EQ(packet->bth.pad_count, 1);
  EXPECT_EQ(packet->ext.reth, (Reth{0x123456789abc, RKey(0xdeadbeef), 11}));
  std::string payload;
  packet->for_each_payload_piece(frame, [&](std::span<const std::byte> piece) {
    payload.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  });
  EXPECT_EQ(payload, "hello world");
  auto address = ipv4_address();
  address.traffic_class = 2;
  address.udp_source_port = 0xc123;
  EXPECT_EQ(packet->address, address);
}

TEST(IbPacket, ReadsTheTagOfAVlan) {
  const auto bytes = from_hex(vectors::kAcknowledgeInVlan);
  const auto packet = IbPacket::parse(Frame::from_bytes(bytes));
  ASSERT_TRUE(packet);
  EXPECT_THAT(packet->address.vlan_tci, Optional(0x6064));
  EXPECT_EQ(packet->ext.aeth, Aeth::ack(Msn(0x42)));
  EXPECT_EQ(packet->payload_size, 0);
}

TEST(IbPacket, ReadsIpv6) {
  const auto bytes = from_hex(vectors::kSendOnlyImmediateIpv6);
  const auto packet = IbPacket::parse(Frame::from_bytes(bytes));
  ASSERT_TRUE(packet);
  EXPECT_FALSE(packet->address.is_ipv4());
  EXPECT_EQ(packet->address.flow_label, 0x12345u);
  EXPECT_EQ(packet->address.traffic_class, 0x60);
  EXPECT_EQ(packet->address.hop_limit, 3);
  EXPECT_EQ(packet->ext.immdt.data, 0xcafef00du);
  EXPECT_EQ(packet->payload_size, 1);
}

// IBTA Annex A17 17.3.3: the ICRC covers all fields but those that routers change.
TEST(IbPacket, IcrcCoversAllButWhatMayChangeOnTheWay) {
  const auto check = [](std::string_view hex, std::size_t network,
                        std::set<std::size_t> free_bytes) {
    const auto good = from_hex(hex);
    for (std::size_t at = network; at != good.size(); ++at) {
      auto bad = good;
      bad[at] ^= std::byte{0x01};
      auto frame = Frame::from_bytes(bad);
      const auto crc = icrc_of(frame, *find_icrc_start(frame), bad.size() - kIcrcSize);
      const bool same = crc == util::load_le32(bad.data() + bad.size() - kIcrcSize);
      EXPECT_EQ(same, free_bytes.count(at - network) != 0) << "byte " << at;
    }
  };
  // TOS, TTL, header checksum; UDP checksum; BTH Resv8a.
  check(vectors::kRdmaWriteOnly, 14, {1, 8, 10, 11, 26, 27, 32});
  // Traffic class, flow label, hop limit; UDP checksum; BTH Resv8a.
  check(vectors::kSendOnlyImmediateIpv6, 14, {0, 1, 2, 3, 7, 46, 47, 52});
}

TEST(IbPacket, CorruptionIsFoundWhereverAChecksumReaches) {
  for (const auto hex : vectors::kAll) {
    const auto good = from_hex(hex);
    const auto packet = IbPacket::parse(Frame::from_bytes(good));
    ASSERT_TRUE(packet);
    // UDP checksum, BTH Resv8a; in IPv6 traffic class, flow label and hop limit.
    const std::set<std::size_t> uncovered = packet->address.is_ipv4()
                                                ? std::set<std::size_t>{26, 27, 32}
                                                : std::set<std::size_t>{0, 1, 2, 3, 7, 46, 47, 52};
    for (std::size_t at = packet->network_offset; at != good.size(); ++at) {
      for (unsigned bit = 0; bit != 8; ++bit) {
        auto bad = good;
        bad[at] ^= std::byte(1u << bit);
        if (!IbPacket::parse(Frame::from_bytes(bad))) continue;
        EXPECT_TRUE(uncovered.count(at - packet->network_offset)) << "byte " << at;
      }
    }
  }
}

TEST(IbPacket, EveryPrefixOfAPacketIsRefused) {
  for (const auto hex : vectors::kAll) {
    const auto bytes = from_hex(hex);
    for (std::size_t size = 0; size != bytes.size(); ++size) {
      const auto prefix = std::vector(bytes.begin(), bytes.begin() + long(size));
      EXPECT_FALSE(IbPacket::parse(Frame::from_bytes(prefix))) << size;
    }
  }
}

TEST(IbPacket, EthernetPaddingAfterThePacketIsIgnored) {
  auto bytes = from_hex(vectors::kAcknowledgeInVlan);
  bytes.resize(bytes.size() + 10);
  EXPECT_TRUE(IbPacket::parse(Frame::from_bytes(bytes)));
}

/// The error of a packet with one change and corrected checksums.
PacketError error_with(std::string_view hex,
                       const std::function<void(std::vector<std::byte>&)>& change) {
  auto bytes = from_hex(hex);
  change(bytes);
  util::store_be16(&bytes[24], 0);
  util::store_be16(&bytes[24], checksum_of(std::span(bytes).subspan(14, 20)));
  return error_of(bytes);
}

TEST(IbPacket, GivesTheReasonOfARefusal) {
  const auto set = [](std::size_t at, int value) {
    return [=](std::vector<std::byte>& bytes) { bytes[at] = std::byte(value); };
  };
  const auto with = [&](std::size_t at, int value) {
    return error_with(vectors::kRdmaWriteOnly, set(at, value));
  };
  EXPECT_EQ(with(13, 0x06), PacketError::kOther) << "ARP";
  EXPECT_EQ(with(14, 0x65), PacketError::kOther) << "version 6 in IPv4's EtherType";
  EXPECT_EQ(with(14, 0x44), PacketError::kOther) << "IHL 4";
  EXPECT_EQ(with(23, 6), PacketError::kOther) << "TCP";
  EXPECT_EQ(with(21, 1), PacketError::kOther) << "a later fragment has no UDP header";
  EXPECT_EQ(with(37, 0xb8), PacketError::kOther) << "port 4792";
  EXPECT_EQ(with(20, 0x20), PacketError::kFragment);
  EXPECT_EQ(with(17, 0x49), PacketError::kIpLength) << "one more than there is";
  EXPECT_EQ(with(17, 0x1b), PacketError::kIpLength) << "no room for UDP";
  EXPECT_EQ(with(17, 0x47), PacketError::kUdpLength);
  EXPECT_EQ(with(39, 0x33), PacketError::kUdpLength);
  EXPECT_EQ(with(42, 0x1f), PacketError::kUnknownOpcode);
  EXPECT_EQ(with(42, 0x4a), PacketError::kUnknownOpcode) << "RD";
  EXPECT_EQ(with(43, 0x51), PacketError::kTransportVersion);
  EXPECT_EQ(with(70, 0), PacketError::kIcrc);

  auto bytes = from_hex(vectors::kRdmaWriteOnly);
  bytes[24] ^= std::byte{1};
  EXPECT_EQ(error_of(bytes), PacketError::kIpChecksum);

  bytes = from_hex(vectors::kSendOnlyImmediateIpv6);
  EXPECT_EQ(error_of(std::span(bytes).first(70)), PacketError::kIpLength);
  std::memcpy(&bytes[22], Gid::from_ipv4(1).bytes.data(), Gid::kSize);
  EXPECT_EQ(error_of(bytes), PacketError::kMappedAddress);
}

TEST(IbPacket, IpOptionsAreRefused) {
  auto bytes = from_hex(vectors::kRdmaWriteOnly);
  // Four no-operation options after the header.
  bytes.insert(bytes.begin() + 34, 4, std::byte{1});
  bytes[14] = std::byte{0x46};
  bytes[17] = std::byte{0x4c};
  EXPECT_EQ(error_of(bytes), PacketError::kIpOptions);
}

// The lengths are consistent, but too small for the headers that the BTH announces.
TEST(IbPacket, RefusesAPacketTooShortForHeadersPadAndIcrc) {
  IbHeader header(ipv4_address());
  for (int opcode = 0; opcode != 256; ++opcode) {
    if (!info(Opcode(opcode)).defined) continue;
    Bth bth;
    bth.opcode = Opcode(opcode);
    Frame frame;
    header.emit(bth, {}, 0, frame);
    auto bytes = bytes_of(frame);
    ASSERT_TRUE(IbPacket::parse(Frame::from_bytes(bytes)));
    const auto whole = bytes.size();
    for (std::size_t size = 42; size != whole; ++size) {
      auto cut = std::vector(bytes.begin(), bytes.begin() + long(size));
      util::store_be16(&cut[16], static_cast<std::uint16_t>(size - 14));
      util::store_be16(&cut[38], static_cast<std::uint16_t>(size - 34));
      util::store_be16(&cut[24], 0);
      util::store_be16(&cut[24], checksum_of(std::span(cut).subspan(14, 20)));
      ASSERT_EQ(error_of(cut), PacketError::kShort) << info(Opcode(opcode)).name << " " << size;
    }
    bytes[43] |= std::byte{0x30};  // PadCnt 3 without payload
    ASSERT_EQ(error_of(bytes), PacketError::kShort);
  }
}

// IBTA 9.2, PadCnt.
TEST(IbPacket, PayloadAndPadAreAMultipleOf4Bytes) {
  for (const std::size_t more : {1u, 2u, 3u}) {
    auto bytes = from_hex(vectors::kRdmaWriteOnly);
    bytes.insert(bytes.end() - 4, more, std::byte{0});
    util::store_be16(&bytes[16], static_cast<std::uint16_t>(bytes.size() - 14));
    util::store_be16(&bytes[38], static_cast<std::uint16_t>(bytes.size() - 34));
    util::store_be16(&bytes[24], 0);
    util::store_be16(&bytes[24], checksum_of(std::span(bytes).subspan(14, 20)));
    EXPECT_EQ(error_of(bytes), PacketError::kPad) << more;
  }
}

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

TEST_F(IbHeaderTest, WhatIsEmittedParsesToTheSameForEveryOpcode) {
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
  EXPECT_TRUE(IbPacket::parse(frame)) << "deferred: nobody looks";
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

TEST(PacketError, EveryReasonHasAText) {
  std::set<std::string_view> texts;
  for (std::size_t i = 0; i != kPacketErrorCount; ++i) texts.insert(to_string(PacketError(i)));
  EXPECT_EQ(texts.size(), kPacketErrorCount);
  EXPECT_EQ(texts.count("unknown"), 0u);
}

}  // namespace
}  // namespace softhca::wire
