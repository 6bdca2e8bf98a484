// Frames with wrong bits and congestion marks, as a receiver sees them.
#include "fabric/frame_damage.h"

#include <gtest/gtest.h>

#include <vector>

#include "recorder.h"
#include "wire/ib_header.h"
#include "wire/ib_packet.h"
#include "wire/traffic_class.h"

namespace softhca::fabric {
namespace {

using wire::Encapsulation;
using wire::PacketError;

wire::IbAddress path_on(Encapsulation encapsulation) {
  wire::IbAddress address;
  address.encapsulation = encapsulation;
  if (address.is_ethernet()) {
    address.source_mac = wire::MacAddress::from_u64(kA);
    address.destination_mac = wire::MacAddress::from_u64(kB);
  } else {
    address.source_lid = wire::Lid(1);
    address.destination_lid = wire::Lid(2);
  }
  if (address.is_global()) {
    address.source_gid = wire::Gid::from_ipv4(10, 0, 0, 1);
    address.destination_gid = wire::Gid::from_ipv4(10, 0, 0, 2);
  }
  return address;
}

class FrameDamage : public testing::TestWithParam<Encapsulation> {
 protected:
  wire::Frame packet(std::span<const std::byte> payload, std::uint8_t traffic_class = 0) const {
    wire::Bth bth;
    bth.opcode = wire::Opcode::RC_SEND_ONLY;
    bth.dest_qp = wire::Qpn(0x112);
    auto to = path_on(GetParam());
    if (to.is_global()) to.traffic_class = traffic_class;
    wire::Frame frame;
    wire::IbHeader(to).emit(bth, {}, payload.size(), frame);
    EXPECT_TRUE(frame.add_segment(payload));
    return frame;
  }

  const std::vector<std::byte> bytes_ = std::vector<std::byte>(301, std::byte{0x5a});
};

std::string link_name(const testing::TestParamInfo<Encapsulation>& one) {
  constexpr const char* kNames[] = {"RoceV2", "RoceV1", "Local", "Global"};
  return kNames[static_cast<std::size_t>(one.param)];
}

INSTANTIATE_TEST_SUITE_P(Links, FrameDamage,
                         testing::Values(Encapsulation::kRoceV2, Encapsulation::kRoceV1,
                                         Encapsulation::kLocal, Encapsulation::kGlobal),
                         link_name);

TEST_P(FrameDamage, EveryPartEndsInAWrongIcrc) {
  for (const auto part : {FramePart::kHeader, FramePart::kPayload, FramePart::kIcrc}) {
    for (std::uint64_t random = 0; random != 200; ++random) {
      auto frame = packet(bytes_);
      ASSERT_TRUE(flip_bit(frame, FrameFacts::of(frame), part, random * 7919));
      const auto parsed = wire::IbPacket::parse(frame);
      ASSERT_FALSE(parsed);
      ASSERT_EQ(parsed.error(), PacketError::kIcrc) << random;
    }
  }
}

TEST_P(FrameDamage, OneBitOfThePartIsWrong) {
  const auto right = packet(bytes_);
  const auto facts = FrameFacts::of(right);
  std::vector<std::byte> before(right.size()), after(right.size());
  right.copy_to(before);
  auto frame = packet(bytes_);
  ASSERT_TRUE(flip_bit(frame, facts, FramePart::kPayload, 8 * 300 + 7));
  ASSERT_EQ(frame.size(), before.size());
  frame.copy_to(after);
  const auto at = facts.payload.begin + 300;
  EXPECT_EQ(before[at] ^ after[at], std::byte{0x80});
  after[at] = before[at];
  // On an InfiniBand link the VCRC fits the wrong packet.
  const auto covered = facts.icrc.begin + facts.icrc.size;
  EXPECT_TRUE(std::equal(before.begin(), before.begin() + static_cast<std::ptrdiff_t>(covered),
                         after.begin()));
}

TEST_P(FrameDamage, APacketWithoutPayloadHasNoneToDamage) {
  auto frame = packet({});
  EXPECT_FALSE(flip_bit(frame, FrameFacts::of(frame), FramePart::kPayload, 0));
  EXPECT_TRUE(wire::IbPacket::parse(frame));
}

TEST_P(FrameDamage, OnlyAPacketThatAllowsItIsMarked) {
  const bool has_ip = GetParam() == Encapsulation::kRoceV2;
  for (const std::uint8_t ecn : {0, 1, 2, 3}) {
    auto frame = packet(bytes_, wire::TrafficClass::make(26, ecn).value);
    const bool marked = mark_congestion(frame, FrameFacts::of(frame));
    EXPECT_EQ(marked, has_ip && (ecn == 1 || ecn == 2)) << unsigned{ecn};
    if (!marked) continue;
    // A station on another machine checks both checksums.
    std::vector<std::byte> bytes(frame.size());
    frame.copy_to(bytes);
    const auto parsed = wire::IbPacket::parse(wire::Frame::from_bytes(bytes));
    ASSERT_TRUE(parsed) << to_string(parsed.error());
    EXPECT_EQ(parsed->address.traffic_class, wire::TrafficClass::make(26, 3).value);
    EXPECT_EQ(parsed->payload_size, bytes_.size());
  }
}

TEST_P(FrameDamage, FactsAreThoseOfThePacket) {
  const auto facts = FrameFacts::of(packet(bytes_));
  EXPECT_EQ(facts.kind, FrameKind::kRdma);
  EXPECT_EQ(facts.opcode, wire::Opcode::RC_SEND_ONLY);
  const auto is = [&](const std::string& keys) {
    return matches(parse_fault("port=*," + keys + ",do=lose").value(), facts);
  };
  EXPECT_TRUE(is("qp=0x112"));
  EXPECT_FALSE(is("qp=0x113"));
  EXPECT_TRUE(is("opcode=send"));
  EXPECT_TRUE(is("opcode=RC_SEND_ONLY"));
  EXPECT_FALSE(is("opcode=ack"));
  EXPECT_TRUE(is("kind=rdma"));
  EXPECT_FALSE(is("kind=ip"));
  const auto to = path_on(GetParam());
  EXPECT_EQ(is("from=02:00:00:00:00:01,to=02:00:00:00:00:02"), to.is_ethernet());
  EXPECT_EQ(is("from=10.0.0.1,to=10.0.0.2"), to.is_global());
  EXPECT_EQ(is("from=1,to=2"), !to.is_ethernet());
  EXPECT_FALSE(is("from=10.0.0.2"));
  EXPECT_FALSE(is("to=1"));
}

TEST(FrameFactsTest, OtherFramesHaveAKind) {
  const auto kind_of = [](const wire::Frame& frame) { return FrameFacts::of(frame).kind; };
  EXPECT_EQ(kind_of(frame_of(kB, kA, "x")), FrameKind::kOther);
  EXPECT_EQ(kind_of(wire::Frame()), FrameKind::kOther);
  std::array<std::byte, 14 + 28> arp{};
  arp[12] = std::byte{0x08};
  arp[13] = std::byte{0x06};
  EXPECT_EQ(kind_of(wire::Frame::from_bytes(arp)), FrameKind::kArp);
  std::array<std::byte, 14 + 20 + 8> ip{};
  ip[12] = std::byte{0x08};
  ip[14] = std::byte{0x45};
  ip[26] = std::byte{10};
  const auto facts = FrameFacts::of(wire::Frame::from_bytes(ip));
  EXPECT_EQ(facts.kind, FrameKind::kIp);
  EXPECT_EQ(facts.source_gid, wire::Gid::from_ipv4(10, 0, 0, 0));
  EXPECT_EQ(facts.payload.size, 8u);
  for (std::size_t size = 0; size != ip.size(); ++size) {
    auto cut = wire::Frame::from_bytes(std::span(ip).first(size));
    const auto its = FrameFacts::of(cut);
    (void)mark_congestion(cut, its);
    // The header is damaged if it is there as a whole.
    EXPECT_EQ(flip_bit(cut, its, FramePart::kHeader, 5), size >= 14 + 20) << size;
  }
}

TEST(FrameFactsTest, AFrameWithAWrongIpVersionIsNotMarked) {
  const auto marks = [](std::uint8_t version, std::size_t size) {
    std::vector<std::byte> bytes(14 + size);
    bytes[12] = std::byte{0x08};
    bytes[14] = std::byte(version << 4 | 5);
    bytes[15] = std::byte{0x22};  // ECT(0), of either version
    auto frame = wire::Frame::from_bytes(bytes);
    return mark_congestion(frame, FrameFacts::of(frame));
  };
  EXPECT_TRUE(marks(4, 20));
  EXPECT_FALSE(marks(5, 20));
  EXPECT_FALSE(marks(5, 60));
  EXPECT_FALSE(marks(6, 20));
  EXPECT_FALSE(marks(6, 39));
  EXPECT_TRUE(marks(6, 40));
}

}  // namespace
}  // namespace softhca::fabric
