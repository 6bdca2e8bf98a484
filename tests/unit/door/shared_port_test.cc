// Packets to the MAC of shared addresses: those for the device's own QPs do not leave it.
#include "door/card/shared_port.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

#include "wire/ib_header.h"
#include "wire/train.h"

namespace softhca::door {
namespace {

constexpr std::uint64_t kStationMac = 0x025fcb000009, kOwnMac = 0x025fcb000002;
constexpr hub::RoceBlock kOwnBlock = 7;

/// A port that keeps what it is given.
class PortBelow final : public fabric::Port {
 public:
  std::uint64_t transmit(const wire::Frame& frame) override {
    sent.push_back(frame);
    return ++number;
  }
  std::uint64_t loop_back(const wire::Frame& frame, std::uint32_t mark) override {
    EXPECT_EQ(mark, 0u);
    looped.push_back(frame);
    return ++number;
  }
  std::uint64_t released() const override { return 0; }
  void set_receiver(fabric::Receiver*) override {}
  bool takes_trains() const override { return true; }
  bool link_up() const override { return true; }

  std::vector<wire::Frame> sent, looped;
  std::uint64_t number = 0;
};

class SharedPortTest : public testing::Test {
 protected:
  wire::Frame packet(std::uint64_t mac, std::uint32_t qpn, std::size_t payload = 256) const {
    wire::IbAddress address;
    address.source_mac = wire::MacAddress::from_u64(kOwnMac);
    address.destination_mac = wire::MacAddress::from_u64(mac);
    address.source_gid = address.destination_gid = wire::Gid::from_ipv4(192, 0, 2, 1);
    wire::Bth bth;
    bth.opcode = wire::Opcode::RC_RDMA_WRITE_MIDDLE;
    bth.dest_qp = wire::Qpn(qpn);
    wire::Frame frame;
    wire::IbHeader(address).emit(bth, {}, payload, frame);
    return frame;
  }
  wire::IbPacket looped() const {
    EXPECT_EQ(below_.looped.size(), 1u);
    const auto parsed = wire::IbPacket::parse(below_.looped.at(0));
    EXPECT_TRUE(parsed);
    return *parsed;
  }

  const std::vector<std::byte> payload_ = std::vector<std::byte>(1024, std::byte{0x5a});
  PortBelow below_;
  SharedPort port_{below_,
                   {.station = wire::MacAddress::from_u64(kStationMac),
                    .own = wire::MacAddress::from_u64(kOwnMac),
                    .block = kOwnBlock}};
};

TEST_F(SharedPortTest, APacketForAnOwnQpIsTurnedAround) {
  auto frame = packet(kStationMac, 0x070123);
  ASSERT_TRUE(frame.add_segment(std::span(payload_).first(256)));
  EXPECT_EQ(port_.transmit(frame), 1u);
  EXPECT_TRUE(below_.sent.empty());
  const auto parsed = looped();
  EXPECT_EQ(parsed.address.destination_mac.to_u64(), kOwnMac);
  EXPECT_EQ(parsed.bth.dest_qp, wire::Qpn(0x070123));
  EXPECT_EQ(parsed.payload_size, 256u);
}

TEST_F(SharedPortTest, AFrameOfBytesIsTurnedAroundToo) {
  auto frame = packet(kStationMac, 0x070123);
  ASSERT_TRUE(frame.add_segment(std::span(payload_).first(256)));
  std::vector<std::byte> bytes(frame.size());
  frame.copy_to(bytes);
  port_.transmit(wire::Frame::from_bytes(bytes));
  EXPECT_EQ(looped().address.destination_mac.to_u64(), kOwnMac);
}

TEST_F(SharedPortTest, ATrainStaysOne) {
  auto frame = packet(kStationMac, 0x070123);
  ASSERT_TRUE(frame.add_segment(payload_));
  frame.set_train({4, 256, 0, false});
  port_.transmit(frame);
  ASSERT_EQ(below_.looped.size(), 1u);
  const auto& train = below_.looped[0];
  ASSERT_EQ(train.packets(), 4u);
  wire::Frame last;
  wire::cut(train, 3, last);
  const auto parsed = wire::IbPacket::parse(last);
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->address.destination_mac.to_u64(), kOwnMac);
  EXPECT_EQ(parsed->bth.psn, wire::Psn(3));
}

TEST_F(SharedPortTest, OtherFramesPass) {
  auto of_another = packet(kStationMac, 0x080123), to_manager = packet(kStationMac, 1),
       elsewhere = packet(kOwnMac + 1, 0x070123);
  for (auto* const frame : {&of_another, &to_manager, &elsewhere}) {
    ASSERT_TRUE(frame->add_segment(std::span(payload_).first(256)));
    port_.transmit(*frame);
  }
  std::vector<std::byte> arp(60);
  std::ranges::copy(wire::MacAddress::from_u64(kStationMac).bytes, arp.begin());
  arp[12] = std::byte{8};
  arp[13] = std::byte{6};
  port_.transmit(wire::Frame::from_bytes(arp));
  port_.transmit(wire::Frame::from_bytes(std::span(arp).first(5)));
  EXPECT_EQ(below_.sent.size(), 5u);
  EXPECT_TRUE(below_.looped.empty());
}

}  // namespace
}  // namespace softhca::door
