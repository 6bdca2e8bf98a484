// RoCE packets on Ethernet: what is accepted, and the reasons of refusals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>
#include <string_view>

#include "frame_bytes.h"
#include "hex.h"
#include "ib_packets.h"
#include "vectors.h"
#include "wire/ib_header.h"
#include "wire/icrc.h"

namespace softhca::wire {
namespace {

using testing::Optional;

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
  EXPECT_EQ(with(42, 0x3f), PacketError::kUnknownOpcode) << "reserved in UC";
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

TEST(PacketError, EveryReasonHasAText) {
  std::set<std::string_view> texts;
  for (std::size_t i = 0; i != kPacketErrorCount; ++i) texts.insert(to_string(PacketError(i)));
  EXPECT_EQ(texts.size(), kPacketErrorCount);
  EXPECT_EQ(texts.count("unknown"), 0u);
}

}  // namespace
}  // namespace softhca::wire
