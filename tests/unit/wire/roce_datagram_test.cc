// RoCEv2 packets as a UDP socket sends and receives them.
#include "wire/roce_datagram.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string_view>
#include <vector>

#include "frame_bytes.h"
#include "hex.h"
#include "ib_packets.h"
#include "vectors.h"
#include "wire/ib_header.h"
#include "wire/icrc_sum.h"
#include "wire/train.h"

namespace softhca::wire {
namespace {

constexpr std::string_view kUntagged[] = {vectors::kCnpOfConnectX4Lx, vectors::kRdmaWriteOnly,
                                          vectors::kUdSendOnly, vectors::kSendOnlyImmediateIpv6};

/// A frame of another device, as a UDP socket receives it.
struct Received {
  explicit Received(std::string_view hex) : whole(from_hex(hex)) {
    const auto packet = *IbPacket::parse(Frame::from_bytes(whole));
    const auto& address = packet.address;
    path = {.source = address.source_gid,
            .destination = address.destination_gid,
            .source_port = address.udp_source_port,
            .traffic_class = address.traffic_class,
            .hop_limit = address.hop_limit};
    const auto headers = masked_size(network_header(address)) - BthLayout::kSize;
    bytes = {whole.begin() + packet.network_offset + static_cast<long>(headers), whole.end()};
    source = address.source_mac;
    destination = address.destination_mac;
    flow_label = address.flow_label;
  }
  tl::expected<void, DatagramError> read(Frame& frame) const {
    return DatagramReader(source, destination).read(bytes, path, frame);
  }

  std::vector<std::byte> whole, bytes;
  DatagramPath path;
  MacAddress source, destination;
  std::uint32_t flow_label = 0;
};

std::vector<std::byte> bytes_of(const RoceDatagram& datagram) {
  std::vector<std::byte> bytes;
  for (const auto piece : datagram.pieces()) bytes.insert(bytes.end(), piece.begin(), piece.end());
  EXPECT_EQ(bytes.size(), datagram.size);
  return bytes;
}

// One of them has an identification, which the socket does not see.
TEST(RoceDatagram, FramesOfReceivedDatagramsAreThoseOnTheWire) {
  for (const auto hex : kUntagged) {
    const Received received(hex);
    Frame frame;
    ASSERT_TRUE(received.read(frame)) << hex;
    auto expected = received.whole;
    // A socket does not see the flow label either, and the ICRC does not cover it.
    if (!received.path.destination.is_ipv4()) util::store_be32(&expected[14], 0x66000000);
    EXPECT_EQ(wire::bytes_of(frame), expected) << hex;
    EXPECT_TRUE(IbPacket::parse(frame)) << hex;
  }
}

TEST(RoceDatagram, SendsThePacketsThatOthersSend) {
  for (const auto hex :
       {vectors::kRdmaWriteOnly, vectors::kUdSendOnly, vectors::kSendOnlyImmediateIpv6}) {
    const Received received(hex);
    const auto frame = Frame::from_bytes(received.whole);
    RoceDatagram datagram;
    ASSERT_TRUE(datagram.make(frame, received.path.source_port)) << hex;
    EXPECT_EQ(bytes_of(datagram), received.bytes) << hex;
    EXPECT_EQ(datagram.path, received.path) << hex;
  }
}

// The kernel writes identification 0, and another port than the device chose.
TEST(RoceDatagram, TheIcrcIsThatOfTheHeadersThatTheKernelWrites) {
  for (const auto hex : kUntagged) {
    const Received received(hex);
    const auto frame = Frame::from_bytes(received.whole);
    RoceDatagram datagram;
    ASSERT_TRUE(datagram.make(frame, 4791));
    auto on_wire = received.whole;
    const std::size_t udp = received.path.destination.is_ipv4() ? 34 : 54;
    util::store_be16(&on_wire[udp], 4791);
    if (udp == 34) {
      util::store_be16(&on_wire[18], 0);
      util::store_be16(&on_wire[24], 0);
      util::store_be16(&on_wire[24], checksum_of(std::span(on_wire).subspan(14, 20)));
    }
    const auto bytes = bytes_of(datagram);
    std::ranges::copy(bytes, on_wire.begin() + static_cast<long>(udp + 8));
    EXPECT_TRUE(IbPacket::parse(Frame::from_bytes(on_wire))) << hex;
  }
}

// Headers are values, the payload is in pieces of memory, and the pad is in the tail.
TEST(RoceDatagram, SendsAFrameOfTheDevice) {
  auto address = ipv4_address();
  for (const bool ipv6 : {false, true}) {
    if (ipv6) {
      address.source_gid.bytes[0] = address.destination_gid.bytes[0] = std::byte{0xfd};
    }
    std::vector<std::byte> payload(1001, std::byte{0x5a});
    Bth bth;
    bth.opcode = Opcode::RC_RDMA_WRITE_ONLY;
    Frame frame;
    IbHeader(address).emit(bth, {}, payload.size(), frame);
    ASSERT_TRUE(frame.add_segment(std::span(payload).first(600)));
    const std::vector<std::byte> rest(payload.begin() + 600, payload.end());
    ASSERT_TRUE(frame.add_segment(rest));
    RoceDatagram datagram;
    ASSERT_TRUE(datagram.make(frame, 0xc123));
    // The payload is not copied.
    EXPECT_EQ(datagram.pieces()[1].data(), payload.data());
    EXPECT_EQ(datagram.pieces()[2].data(), rest.data());

    const auto bytes = bytes_of(datagram);
    Frame arrived;
    ASSERT_TRUE(DatagramReader(address.source_mac, address.destination_mac)
                    .read(bytes, datagram.path, arrived));
    const auto packet = IbPacket::parse(arrived);
    ASSERT_TRUE(packet);
    address.udp_source_port = 0xc123;
    EXPECT_EQ(packet->address, address);
    EXPECT_EQ(packet->payload_size, payload.size());
    // With the CRC checked as from a wire.
    EXPECT_TRUE(IbPacket::parse(Frame::from_bytes(wire::bytes_of(arrived))));
  }
}

TEST(RoceDatagram, EcnBitsPassBothWays) {
  for (const int ecn : {0, 1, 2, 3}) {
    Received received(vectors::kRdmaWriteOnly);
    received.path.traffic_class = static_cast<std::uint8_t>(0x60 | ecn);
    Frame frame;
    ASSERT_TRUE(received.read(frame));
    EXPECT_EQ(IbPacket::parse(frame)->address.traffic_class, 0x60 | ecn);
    RoceDatagram datagram;
    ASSERT_TRUE(datagram.make(frame, 1));
    EXPECT_EQ(datagram.path.traffic_class, 0x60 | ecn);
  }
}

TEST(RoceDatagram, EveryIdentificationIsFound) {
  HiddenIdentification hidden;
  const Received received(vectors::kUdSendOnly);
  auto bytes = received.whole;
  const auto icrc_with = [&](std::uint16_t identification) {
    util::store_be16(&bytes[18], identification);
    const auto frame = Frame::from_bytes(bytes);
    return icrc_of(frame, *find_icrc_start(frame), bytes.size() - kIcrcSize);
  };
  const auto behind = bytes.size() - kIcrcSize - 20;
  const auto none = icrc_with(0);
  for (std::uint32_t i = 0; i < 0x10000; i += 251) {
    const auto identification = static_cast<std::uint16_t>(i);
    EXPECT_EQ(hidden.find(none ^ icrc_with(identification), behind), identification);
  }
}

// A message that the kernel cuts has parts with identifications 0, 1, ...
TEST(RoceDatagram, AnIdentificationIsInTheIcrcUnlessThePacketIsAlone) {
  for (const auto hex : {vectors::kRdmaWriteOnly, vectors::kSendOnlyImmediateIpv6}) {
    const Received received(hex);
    const auto frame = Frame::from_bytes(received.whole);
    RoceDatagram alone;
    ASSERT_TRUE(alone.make(frame, 4791));
    for (const std::uint16_t number : {0, 1, 2, 62, 0x1234}) {
      RoceDatagram part;
      ASSERT_TRUE(part.make(frame, 4791, number));
      EXPECT_EQ(part.path.identification, number);
      EXPECT_THAT(part.icrc_alone(), testing::ElementsAreArray(alone.pieces().back())) << number;
      const bool differs = number != 0 && received.path.destination.is_ipv4();
      EXPECT_EQ(bytes_of(part) != bytes_of(alone), differs) << number;
    }
  }
}

// Whatever identification the receiver expects, it finds the real one.
TEST(RoceDatagram, TheExpectedIdentificationIsTriedFirst) {
  const Received received(vectors::kRdmaWriteOnly);
  const auto sent = Frame::from_bytes(received.whole);
  for (const std::uint16_t number : {0, 1, 7, 0xabcd}) {
    RoceDatagram part;
    ASSERT_TRUE(part.make(sent, 4791, number));
    const auto bytes = bytes_of(part);
    for (const std::uint16_t expected : {0, 7, 0xabcd}) {
      auto path = part.path;
      path.identification = expected;
      Frame frame;
      ASSERT_TRUE(DatagramReader(received.source, received.destination).read(bytes, path, frame));
      EXPECT_EQ(util::load_be16(&frame.head()[18]), number);
      EXPECT_TRUE(IbPacket::parse(Frame::from_bytes(wire::bytes_of(frame))));
    }
  }
}

TEST(RoceDatagram, CorruptionIsFoundThoughTheIdentificationIsHidden) {
  for (const auto hex : kUntagged) {
    const Received good(hex);
    unsigned accepted = 0;
    for (std::size_t at = 0; at != good.bytes.size(); ++at) {
      if (at == 4) continue;  // BTH Resv8a
      for (unsigned bit = 0; bit != 8; ++bit) {
        auto bad = good;
        bad.bytes[at] ^= std::byte(1u << bit);
        Frame frame;
        const auto read = bad.read(frame);
        if (read) {
          ++accepted;
        } else {
          EXPECT_EQ(read.error(), DatagramError::kIcrc);
        }
      }
    }
    EXPECT_EQ(accepted, 0u) << hex;
  }
}

TEST(RoceDatagram, AddressesAndPortAreCovered) {
  for (const auto hex : {vectors::kRdmaWriteOnly, vectors::kSendOnlyImmediateIpv6}) {
    const Received good(hex);
    const auto is_accepted = [&](auto change) {
      auto bad = good;
      change(bad.path);
      Frame frame;
      return bad.read(frame).has_value();
    };
    EXPECT_FALSE(is_accepted([](auto& path) { path.source.bytes[15] ^= std::byte{1}; }));
    EXPECT_FALSE(is_accepted([](auto& path) { path.destination.bytes[15] ^= std::byte{1}; }));
    EXPECT_FALSE(is_accepted([](auto& path) { path.source_port ^= 1; }));
    EXPECT_TRUE(is_accepted([](auto& path) { path.hop_limit ^= 1; }));
  }
}

TEST(RoceDatagram, RefusesWhatIsNoPacket) {
  const Received good(vectors::kUdSendOnly);
  const auto error_of = [](const Received& received) {
    Frame frame;
    const auto read = received.read(frame);
    return read ? DatagramError::kOther : read.error();
  };
  for (std::size_t size = 0; size != good.bytes.size(); ++size) {
    auto prefix = good;
    prefix.bytes.resize(size);
    EXPECT_EQ(error_of(prefix), size < 16 ? DatagramError::kLength : DatagramError::kIcrc);
  }
  auto longer = good;
  longer.bytes.resize(65507);
  EXPECT_EQ(error_of(longer), DatagramError::kLength);
  auto mixed = good;
  mixed.path.source.bytes[0] = std::byte{0xfd};
  EXPECT_EQ(error_of(mixed), DatagramError::kAddress);
}

TEST(RoceDatagram, SendsOnlyRoceV2ToOneStation) {
  RoceDatagram datagram;
  const auto error_of = [&](const Frame& frame) { return datagram.make(frame, 1).error(); };
  const auto v1 = from_hex(vectors::kRoceV1UdSendOnly);
  EXPECT_EQ(error_of(Frame::from_bytes(v1)), DatagramError::kOther);
  auto corrupt = from_hex(vectors::kUdSendOnly);
  corrupt.back() ^= std::byte{1};
  EXPECT_EQ(error_of(Frame::from_bytes(corrupt)), DatagramError::kIcrc);
  const std::vector<std::byte> arp(60);
  EXPECT_EQ(error_of(Frame::from_bytes(arp)), DatagramError::kOther);
  EXPECT_EQ(error_of(Frame()), DatagramError::kOther);

  auto address = ipv4_address();
  Bth bth;
  bth.opcode = Opcode::UD_SEND_ONLY;
  Frame frame;
  address.destination_gid = Gid::from_ipv4(239, 1, 2, 3);
  IbHeader(address).emit(bth, {}, 0, frame);
  EXPECT_TRUE(datagram.make(frame, 1)) << "a group has datagrams, too";
  EXPECT_EQ(datagram.path.destination, Gid::from_ipv4(239, 1, 2, 3));
  address.encapsulation = Encapsulation::kRoceV1;
  IbHeader(address).emit(bth, {}, 0, frame);
  EXPECT_EQ(error_of(frame), DatagramError::kOther);
}

// Ethernet pads a short packet. The pad is no part of the datagram.
TEST(RoceDatagram, PaddingOfEthernetIsNotSent) {
  const Received received(vectors::kRdmaWriteOnly);
  auto padded = received.whole;
  padded.resize(padded.size() + 10);
  const auto frame = Frame::from_bytes(padded);
  RoceDatagram datagram;
  ASSERT_TRUE(datagram.make(frame, received.path.source_port));
  EXPECT_EQ(bytes_of(datagram), received.bytes);
}

}  // namespace
}  // namespace softhca::wire
