#include "wire/roce.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <set>
#include <string>

#include "hex.h"
#include "vectors.h"

namespace softhca::wire {
namespace {

using testing::Optional;

std::vector<std::byte> bytes_of(const Frame& frame) {
  std::vector<std::byte> bytes(frame.size());
  frame.copy_to(bytes);
  return bytes;
}

/// The error of a frame that must not be RoCE.
RoceError error_of(std::span<const std::byte> bytes) {
  const auto packet = RocePacket::parse(Frame::from_bytes(bytes));
  EXPECT_FALSE(packet);
  return packet ? RoceError::kNotRoce : packet.error();
}

RoceAddress ipv4_address() {
  RoceAddress address;
  address.destination_mac = MacAddress::from_u64(0x020000000002);
  address.source_mac = MacAddress::from_u64(0x020000000001);
  address.source_gid = Gid::from_ipv4(0x0a000001);
  address.destination_gid = Gid::from_ipv4(0x0a000002);
  return address;
}

TEST(RocePacket, AcceptsPacketsWhoseIcrcOthersComputed) {
  for (const auto hex : vectors::kAll) {
    const auto bytes = from_hex(hex);
    const auto packet = RocePacket::parse(Frame::from_bytes(bytes));
    EXPECT_TRUE(packet) << hex << ": " << to_string(packet.error());
  }
}

TEST(RocePacket, ReadsACnpOfConnectX4Lx) {
  const auto bytes = from_hex(vectors::kCnpOfConnectX4Lx);
  const auto packet = RocePacket::parse(Frame::from_bytes(bytes));
  ASSERT_TRUE(packet);
  EXPECT_EQ(packet->bth.opcode, Opcode::CNP);
  EXPECT_TRUE(packet->bth.becn);
  EXPECT_EQ(packet->bth.dest_qp, Qpn(0x118));
  EXPECT_EQ(packet->payload_size, 16);
  EXPECT_EQ(packet->address.traffic_class, 0xc2);
}

TEST(RocePacket, ReadsAnRdmaWrite) {
  const auto bytes = from_hex(vectors::kRdmaWriteOnly);
  const auto frame = Frame::from_bytes(bytes);
  const auto packet = RocePacket::parse(frame);
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

TEST(RocePacket, ReadsTheTagOfAVlan) {
  const auto bytes = from_hex(vectors::kAcknowledgeInVlan);
  const auto packet = RocePacket::parse(Frame::from_bytes(bytes));
  ASSERT_TRUE(packet);
  EXPECT_THAT(packet->address.vlan_tci, Optional(0x6064));
  EXPECT_EQ(packet->ext.aeth, Aeth::ack(Msn(0x42)));
  EXPECT_EQ(packet->payload_size, 0);
}

TEST(RocePacket, ReadsIpv6) {
  const auto bytes = from_hex(vectors::kSendOnlyImmediateIpv6);
  const auto packet = RocePacket::parse(Frame::from_bytes(bytes));
  ASSERT_TRUE(packet);
  EXPECT_FALSE(packet->address.is_ipv4());
  EXPECT_EQ(packet->address.flow_label, 0x12345u);
  EXPECT_EQ(packet->address.traffic_class, 0x60);
  EXPECT_EQ(packet->address.hop_limit, 3);
  EXPECT_EQ(packet->ext.immdt.data, 0xcafef00du);
  EXPECT_EQ(packet->payload_size, 1);
}

// IBTA Annex A17 17.3.3: fields that routers change are not part of the ICRC, all others are.
TEST(RocePacket, IcrcCoversAllButWhatMayChangeOnTheWay) {
  const auto check = [](std::string_view hex, std::size_t network,
                        std::set<std::size_t> free_bytes) {
    const auto good = from_hex(hex);
    for (std::size_t at = network; at != good.size(); ++at) {
      auto bad = good;
      bad[at] ^= std::byte{0x01};
      auto frame = Frame::from_bytes(bad);
      const auto crc = icrc_of(frame, network, bad.size() - kIcrcSize);
      const bool same = crc == util::load_le32(bad.data() + bad.size() - kIcrcSize);
      EXPECT_EQ(same, free_bytes.count(at - network) != 0) << "byte " << at;
    }
  };
  // TOS, TTL, header checksum; UDP checksum; BTH Resv8a.
  check(vectors::kRdmaWriteOnly, 14, {1, 8, 10, 11, 26, 27, 32});
  // Traffic class, flow label, hop limit; UDP checksum; BTH Resv8a.
  check(vectors::kSendOnlyImmediateIpv6, 14, {0, 1, 2, 3, 7, 46, 47, 52});
}

TEST(RocePacket, CorruptionIsFoundWhereverAChecksumReaches) {
  for (const auto hex : vectors::kAll) {
    const auto good = from_hex(hex);
    const auto packet = RocePacket::parse(Frame::from_bytes(good));
    ASSERT_TRUE(packet);
    // UDP checksum, BTH Resv8a; in IPv6 traffic class, flow label and hop limit.
    const std::set<std::size_t> uncovered = packet->address.is_ipv4()
                                                ? std::set<std::size_t>{26, 27, 32}
                                                : std::set<std::size_t>{0, 1, 2, 3, 7, 46, 47, 52};
    for (std::size_t at = packet->network_offset; at != good.size(); ++at) {
      for (unsigned bit = 0; bit != 8; ++bit) {
        auto bad = good;
        bad[at] ^= std::byte(1u << bit);
        if (!RocePacket::parse(Frame::from_bytes(bad))) continue;
        EXPECT_TRUE(uncovered.count(at - packet->network_offset)) << "byte " << at;
      }
    }
  }
}

TEST(RocePacket, EveryPrefixOfAPacketIsRefused) {
  for (const auto hex : vectors::kAll) {
    const auto bytes = from_hex(hex);
    for (std::size_t size = 0; size != bytes.size(); ++size) {
      const auto prefix = std::vector(bytes.begin(), bytes.begin() + long(size));
      EXPECT_FALSE(RocePacket::parse(Frame::from_bytes(prefix))) << size;
    }
  }
}

TEST(RocePacket, EthernetPaddingAfterThePacketIsIgnored) {
  auto bytes = from_hex(vectors::kAcknowledgeInVlan);
  bytes.resize(bytes.size() + 10);
  EXPECT_TRUE(RocePacket::parse(Frame::from_bytes(bytes)));
}

/// A packet with one thing changed and checksums made right again.
RoceError error_with(std::string_view hex,
                     const std::function<void(std::vector<std::byte>&)>& change) {
  auto bytes = from_hex(hex);
  change(bytes);
  util::store_be16(&bytes[24], 0);
  util::store_be16(&bytes[24], checksum_of(std::span(bytes).subspan(14, 20)));
  return error_of(bytes);
}

TEST(RocePacket, GivesTheReasonOfARefusal) {
  const auto set = [](std::size_t at, int value) {
    return [=](std::vector<std::byte>& bytes) { bytes[at] = std::byte(value); };
  };
  const auto with = [&](std::size_t at, int value) {
    return error_with(vectors::kRdmaWriteOnly, set(at, value));
  };
  EXPECT_EQ(with(13, 0x06), RoceError::kNotRoce) << "ARP";
  EXPECT_EQ(with(14, 0x65), RoceError::kNotRoce) << "version 6 in IPv4's EtherType";
  EXPECT_EQ(with(14, 0x44), RoceError::kNotRoce) << "IHL 4";
  EXPECT_EQ(with(23, 6), RoceError::kNotRoce) << "TCP";
  EXPECT_EQ(with(21, 1), RoceError::kNotRoce) << "a later fragment has no UDP header";
  EXPECT_EQ(with(37, 0xb8), RoceError::kNotRoce) << "port 4792";
  EXPECT_EQ(with(20, 0x20), RoceError::kFragment);
  EXPECT_EQ(with(17, 0x49), RoceError::kIpLength) << "one more than there is";
  EXPECT_EQ(with(17, 0x1b), RoceError::kIpLength) << "no room for UDP";
  EXPECT_EQ(with(17, 0x47), RoceError::kUdpLength);
  EXPECT_EQ(with(39, 0x33), RoceError::kUdpLength);
  EXPECT_EQ(with(42, 0x1f), RoceError::kUnknownOpcode);
  EXPECT_EQ(with(42, 0x4a), RoceError::kUnknownOpcode) << "RD";
  EXPECT_EQ(with(43, 0x51), RoceError::kTransportVersion);
  EXPECT_EQ(with(70, 0), RoceError::kIcrc);

  auto bytes = from_hex(vectors::kRdmaWriteOnly);
  bytes[24] ^= std::byte{1};
  EXPECT_EQ(error_of(bytes), RoceError::kIpChecksum);

  bytes = from_hex(vectors::kSendOnlyImmediateIpv6);
  EXPECT_EQ(error_of(std::span(bytes).first(70)), RoceError::kIpLength);
  std::memcpy(&bytes[22], Gid::from_ipv4(1).bytes.data(), Gid::kSize);
  EXPECT_EQ(error_of(bytes), RoceError::kMappedAddress);
}

TEST(RocePacket, IpOptionsAreRefused) {
  auto bytes = from_hex(vectors::kRdmaWriteOnly);
  // Four no-operation options after the header.
  bytes.insert(bytes.begin() + 34, 4, std::byte{1});
  bytes[14] = std::byte{0x46};
  bytes[17] = std::byte{0x4c};
  EXPECT_EQ(error_of(bytes), RoceError::kIpOptions);
}

// Lengths that are consistent with each other and too small for what BTH promises.
TEST(RocePacket, RefusesAPacketTooShortForHeadersPadAndIcrc) {
  RoceHeader header(ipv4_address());
  for (int opcode = 0; opcode != 256; ++opcode) {
    if (!info(Opcode(opcode)).defined) continue;
    Bth bth;
    bth.opcode = Opcode(opcode);
    Frame frame;
    header.emit(bth, {}, 0, frame);
    auto bytes = bytes_of(frame);
    ASSERT_TRUE(RocePacket::parse(Frame::from_bytes(bytes)));
    const auto whole = bytes.size();
    for (std::size_t size = 42; size != whole; ++size) {
      auto cut = std::vector(bytes.begin(), bytes.begin() + long(size));
      util::store_be16(&cut[16], static_cast<std::uint16_t>(size - 14));
      util::store_be16(&cut[38], static_cast<std::uint16_t>(size - 34));
      util::store_be16(&cut[24], 0);
      util::store_be16(&cut[24], checksum_of(std::span(cut).subspan(14, 20)));
      ASSERT_EQ(error_of(cut), RoceError::kShort) << info(Opcode(opcode)).name << " " << size;
    }
    bytes[43] |= std::byte{0x30};  // a pad of 3 and nothing to be padded
    ASSERT_EQ(error_of(bytes), RoceError::kShort);
  }
}

class RoceHeaderTest : public testing::Test {
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
  RoceAddress random_address() {
    RoceAddress address;
    address.destination_mac = MacAddress::from_u64(engine_() >> 16);
    address.source_mac = MacAddress::from_u64(engine_() >> 16);
    if (random(1)) address.vlan_tci = random(16);
    const bool ipv4 = random(1) != 0;
    address.source_gid = ipv4 ? Gid::from_ipv4(random(32)) : random_ipv6();
    address.destination_gid = ipv4 ? Gid::from_ipv4(random(32)) : random_ipv6();
    address.traffic_class = static_cast<std::uint8_t>(random(8));
    if (!ipv4) address.flow_label = random(20);
    address.hop_limit = static_cast<std::uint8_t>(random(8));
    address.udp_source_port = static_cast<std::uint16_t>(random(16));
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
  /// Only those that the opcode has.
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

TEST_F(RoceHeaderTest, WhatIsEmittedParsesToTheSameForEveryOpcode) {
  std::vector<std::byte> payload(5000);
  for (auto& byte : payload) byte = std::byte(random(8));
  for (int round = 0; round != 20; ++round) {
    const auto address = random_address();
    const RoceHeader header(address);
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

      const auto check = [&](const tl::expected<RocePacket, RoceError>& packet) {
        ASSERT_TRUE(packet) << to_string(packet.error());
        EXPECT_EQ(packet->address, address);
        EXPECT_EQ(packet->bth, bth);
        EXPECT_EQ(packet->ext, ext);
        EXPECT_EQ(packet->payload_size, size);
      };
      check(RocePacket::parse(frame));  // as it goes from device to device in this process
      const auto bytes = bytes_of(frame);
      check(RocePacket::parse(Frame::from_bytes(bytes)));  // as a wire brings it
    }
  }
}

TEST_F(RoceHeaderTest, WritesWhatScapyWrites) {
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
  RoceHeader(address).emit(bth, ext, 11, frame);
  const std::string_view payload = "hello world";
  ASSERT_TRUE(frame.add_segment(std::as_bytes(std::span(payload))));
  EXPECT_EQ(bytes_of(frame), from_hex(vectors::kRdmaWriteOnly));
}

TEST_F(RoceHeaderTest, LargestPacketFitsTheHead) {
  auto address = random_address();
  address.vlan_tci = 1;
  address.source_gid = address.destination_gid = random_ipv6();
  for (const auto& opcode : kOpcodes) {
    if (!opcode.defined) continue;
    EXPECT_LE(RoceHeader(address).size(Opcode(&opcode - kOpcodes.data())), Frame::kHeadCapacity);
  }
}

TEST_F(RoceHeaderTest, AFramePresentIcrcIsChecked) {
  Frame frame;
  Bth bth;
  bth.opcode = Opcode::RC_SEND_ONLY;
  RoceHeader(ipv4_address()).emit(bth, {}, 0, frame);
  EXPECT_TRUE(RocePacket::parse(frame)) << "deferred: nobody looks";
  frame.set_icrc(Frame::Icrc::kPresent);
  const auto packet = RocePacket::parse(frame);
  ASSERT_FALSE(packet);
  EXPECT_EQ(packet.error(), RoceError::kIcrc);
}

TEST_F(RoceHeaderTest, UdReceivesTheIpHeaderInPlaceOfTheGrh) {
  std::array<std::byte, 40> grh;
  auto bytes = from_hex(vectors::kUdSendOnly);
  auto frame = Frame::from_bytes(bytes);
  emit_ud_grh(frame, *RocePacket::parse(frame), grh);
  EXPECT_EQ(std::vector(grh.begin(), grh.begin() + 20), std::vector<std::byte>(20));
  EXPECT_TRUE(std::equal(grh.begin() + 20, grh.end(), bytes.begin() + 14));

  bytes = from_hex(vectors::kSendOnlyImmediateIpv6);
  frame = Frame::from_bytes(bytes);
  emit_ud_grh(frame, *RocePacket::parse(frame), grh);
  EXPECT_TRUE(std::equal(grh.begin(), grh.end(), bytes.begin() + 14));
}

TEST(RoceError, EveryReasonHasAText) {
  std::set<std::string_view> texts;
  for (std::size_t i = 0; i != kRoceErrorCount; ++i) texts.insert(to_string(RoceError(i)));
  EXPECT_EQ(texts.size(), kRoceErrorCount);
  EXPECT_EQ(texts.count("unknown"), 0u);
}

}  // namespace
}  // namespace softhca::wire
