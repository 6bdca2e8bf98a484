// The cached headers of a flow must equal a full parse of the frame, whatever the frame holds.
#include "ethernet/flow_headers.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "ethernet/checksum_offload.h"
#include "ethernet/vectors.h"
#include "wire/frame_bytes.h"
#include "wire/hex.h"

namespace softhca::ethernet {
namespace {

using wire::Frame;
using wire::from_hex;

constexpr std::string_view kFlows[] = {vectors::kTcpIpv4, vectors::kUdpIpv4, vectors::kUdpIpv6,
                                       vectors::kTcpIpv6HopByHop, vectors::kUdpIpv4Options};

FlowHeaders known(const std::vector<std::byte>& bytes, bool tcp_flags = false) {
  const auto frame = Frame::from_bytes(bytes);
  const auto packet = classify(frame);
  EXPECT_TRUE(FlowHeaders::can_be_cached(packet));
  FlowHeaders header;
  header.remember(frame, packet, tcp_flags);
  return header;
}

TEST(FlowHeaders, AFrameWithAnyByteChangedIsNotKnownOrIsWhatItIs) {
  std::mt19937 random(1);
  for (const auto hex : kFlows) {
    const auto original = from_hex(hex);
    auto header = known(original);
    unsigned parsed = 0;
    for (unsigned i = 0; i < 20000; ++i) {
      auto bytes = original;
      for (auto changes = random() % 3; changes != 0; --changes) {
        bytes[random() % bytes.size()] = static_cast<std::byte>(random());
      }
      if (random() % 4 == 0) bytes.resize(bytes.size() - random() % 12);
      if (random() % 4 == 0) bytes.resize(bytes.size() + random() % 12);
      const auto frame = Frame::from_bytes(bytes);
      const auto* packet = header.classify_fast(frame);
      if (packet == nullptr) continue;
      ++parsed;
      ASSERT_EQ(*packet, classify(frame)) << hex << " " << i;
    }
    EXPECT_GT(parsed, 5000u) << hex;
  }
}

TEST(FlowHeaders, LengthsNumbersAndChecksumsDoNotCount) {
  auto bytes = from_hex(vectors::kTcpIpv4);
  auto header = known(bytes);
  constexpr std::size_t kIp = 14;
  constexpr std::size_t kTcp = kIp + 20;
  // Identification and checksum of IP; sequence, acknowledgment, flags, window, checksum and urgent
  // pointer of TCP.
  for (const auto offset : {kIp + 4, kIp + 5, kIp + 10, kIp + 11, kTcp + 4, kTcp + 7, kTcp + 8,
                            kTcp + 11, kTcp + 13, kTcp + 14, kTcp + 16, kTcp + 19}) {
    bytes[offset] ^= std::byte{0x11};
  }
  bytes.resize(bytes.size() - 1);
  bytes[kIp + 3] = static_cast<std::byte>(bytes.size() - kIp);
  const auto frame = Frame::from_bytes(bytes);
  const auto* packet = header.classify_fast(frame);
  ASSERT_NE(packet, nullptr);
  EXPECT_EQ(*packet, classify(frame));
}

TEST(FlowHeaders, TcpFlagsCountIfTheyAreToCount) {
  auto bytes = from_hex(vectors::kTcpIpv4);
  auto header = known(bytes, true);
  EXPECT_NE(header.classify_fast(Frame::from_bytes(bytes)), nullptr);
  bytes[14 + 20 + 13] ^= std::byte{1};
  EXPECT_EQ(header.classify_fast(Frame::from_bytes(bytes)), nullptr);
}

TEST(FlowHeaders, FragmentsOtherProtocolsAndRoceAreNotKnown) {
  for (const auto hex : {vectors::kIpv6Fragment, vectors::kIcmpPaddedTo60}) {
    EXPECT_FALSE(FlowHeaders::can_be_cached(classify(Frame::from_bytes(from_hex(hex)))));
  }
  auto roce = from_hex(vectors::kUdpIpv4);
  roce[36] = std::byte{0x12};
  roce[37] = std::byte{0xB7};
  EXPECT_FALSE(FlowHeaders::can_be_cached(classify(Frame::from_bytes(roce))));
}

/// A frame as a send queue gathers it: headers in the head, the rest by reference.
Frame gathered(const std::vector<std::byte>& bytes, std::size_t headers) {
  Frame frame;
  const auto head = frame.begin(headers, std::span(bytes).subspan(headers));
  std::copy_n(bytes.begin(), headers, head.begin());
  return frame;
}
/// Sets the lengths of IP and UDP to fit the frame's size.
void set_lengths(std::vector<std::byte>& bytes, const PacketInfo& packet) {
  const auto put = [&](std::size_t at, std::size_t value) {
    bytes[at] = std::byte(value >> 8);
    bytes[at + 1] = std::byte(value);
  };
  const bool v4 = packet.l3 == L3Type::kIpv4;
  const auto l3 = packet.l3_offset;
  put(l3 + (v4 ? 2 : 4), bytes.size() - l3 - (v4 ? 0 : 40));
  if (packet.l4 == L4Type::kUdp) put(packet.l4_offset + 4, bytes.size() - packet.l4_offset);
}

TEST(FlowHeaders, FinishesAFrameAsBothOffloadsDo) {
  std::mt19937 random(2);
  for (const auto hex : kFlows) {
    const auto original = from_hex(hex);
    const auto packet = classify(Frame::from_bytes(original));
    const auto header = known(original);
    auto received = known(original);
    unsigned finished = 0;
    for (unsigned i = 0; i < 4000; ++i) {
      auto bytes = original;
      bytes.resize(header.size() + 1 + random() % 1500);
      for (std::size_t at = header.size(); at != bytes.size(); ++at)
        bytes[at] = std::byte(random());
      set_lengths(bytes, packet);
      for (auto changes = random() % 3; changes != 0; --changes) {
        bytes[random() % header.size()] = static_cast<std::byte>(random());
      }
      auto frame = gathered(bytes, header.size());
      if (!header.finish(frame)) continue;
      ++finished;
      auto expected = gathered(bytes, header.size());
      const auto info = classify(expected);
      ASSERT_NE(received.classify_fast(expected), nullptr);
      insert_l4_checksum(expected, info);
      insert_l3_checksum(expected, info);
      ASSERT_EQ(bytes_of(frame), bytes_of(expected)) << hex << " " << i;
      ASSERT_EQ(frame.flow(), header.flow());
      ASSERT_TRUE(frame.checksum_made());
      // The receiver must agree.
      const auto all = bytes_of(frame);
      const auto arrived = Frame::from_bytes(all);
      const auto checked = check(arrived, classify(arrived));
      ASSERT_TRUE(checked.l3_ok && checked.l4_ok);
      ASSERT_EQ(received.sum_finished(frame.size()), checked.sum) << hex << " " << i;
      ASSERT_EQ(received.classify_finished(frame), classify(arrived));
    }
    EXPECT_GT(finished, 500u) << hex;
  }
}

TEST(FlowHeaders, DoesNotFinishOtherFrames) {
  const auto finishes = [](const std::vector<std::byte>& bytes, const FlowHeaders& header) {
    auto frame = gathered(bytes, header.size());
    return header.finish(frame);
  };
  auto bytes = from_hex(vectors::kUdpIpv4);
  bytes.resize(100);
  set_lengths(bytes, classify(Frame::from_bytes(bytes)));
  const auto header = known(bytes);
  EXPECT_TRUE(finishes(bytes, header));
  auto padded = bytes;
  padded.resize(110);
  EXPECT_FALSE(finishes(padded, header));
  auto shorter = bytes;
  shorter.resize(59);
  set_lengths(shorter, classify(Frame::from_bytes(bytes)));
  EXPECT_FALSE(finishes(shorter, header)) << "is to be padded";
  auto other_length = bytes;
  other_length[39] ^= std::byte{1};
  EXPECT_FALSE(finishes(other_length, header)) << "of UDP";
  auto other_flow = bytes;
  other_flow[30] ^= std::byte{1};
  EXPECT_FALSE(finishes(other_flow, header));
  // PRM 3.3.1: the device does not support source routing.
  auto routed = from_hex(vectors::kUdpIpv4Options);
  routed[34] = std::byte{131};  // LSRR in place of record route
  routed.resize(100);
  set_lengths(routed, classify(Frame::from_bytes(routed)));
  ASSERT_TRUE(classify(Frame::from_bytes(routed)).ip.source_routed);
  EXPECT_FALSE(finishes(routed, known(routed)));
}

TEST(FlowHeaders, EachThatIsRememberedIsAFlowOfItsOwn) {
  const auto bytes = from_hex(vectors::kUdpIpv4);
  EXPECT_EQ(FlowHeaders().flow(), 0u);
  auto header = known(bytes);
  const auto first = header.flow();
  EXPECT_NE(first, 0u);
  const auto frame = Frame::from_bytes(bytes);
  header.remember(frame, classify(frame), false);
  EXPECT_NE(header.flow(), first);
}

TEST(FlowHeaders, NothingIsKnownAtFirst) {
  FlowHeaders header;
  EXPECT_EQ(header.classify_fast(Frame::from_bytes(from_hex(vectors::kUdpIpv4))), nullptr);
}

// A bad hash has no visible effect on results: flows evict each other, and no frame takes the fast
// path.
TEST(FlowHeaders, TheHashDistinguishesFlowsByTheEndsOfTheirAddressesAndTheirPorts) {
  const struct {
    std::string_view hex;
    std::size_t l4;
  } flows[] = {{vectors::kTcpIpv4, 34}, {vectors::kUdpIpv4, 34}, {vectors::kUdpIpv6, 54}};
  for (const auto& flow : flows) {
    const auto bytes = from_hex(flow.hex);
    const auto hash = FlowHeaders::hash(Frame::from_bytes(bytes));
    // The destination's last byte, and both ports.
    for (const auto at : {flow.l4 - 1, flow.l4 + 1, flow.l4 + 3}) {
      auto other = bytes;
      other[at] ^= std::byte{1};
      EXPECT_NE(FlowHeaders::hash(Frame::from_bytes(other)), hash) << flow.hex << " " << at;
    }
    auto later = bytes;
    later[flow.l4 + 6] ^= std::byte{1};
    EXPECT_EQ(FlowHeaders::hash(Frame::from_bytes(later)), hash) << flow.hex;
  }
}

}  // namespace
}  // namespace softhca::ethernet
