// What is known of a flow's headers must be what taking a frame apart tells, whatever it holds.
#include "ethernet/known_header.h"

#include <gtest/gtest.h>

#include <random>

#include "ethernet/vectors.h"
#include "wire/hex.h"

namespace softhca::ethernet {
namespace {

using wire::Frame;
using wire::from_hex;

constexpr std::string_view kFlows[] = {vectors::kTcpIpv4, vectors::kUdpIpv4, vectors::kUdpIpv6,
                                       vectors::kTcpIpv6HopByHop, vectors::kUdpIpv4Options};

KnownHeader known(const std::vector<std::byte>& bytes, bool tcp_flags = false) {
  const auto frame = Frame::from_bytes(bytes);
  const auto packet = classify(frame);
  EXPECT_TRUE(KnownHeader::can_be_known(packet));
  KnownHeader header;
  header.remember(frame, packet, tcp_flags);
  return header;
}

TEST(KnownHeader, AFrameWithAnyByteChangedIsNotKnownOrIsWhatItIs) {
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
      const auto* packet = header.parse(frame);
      if (packet == nullptr) continue;
      ++parsed;
      ASSERT_EQ(*packet, classify(frame)) << hex << " " << i;
    }
    EXPECT_GT(parsed, 5000u) << hex;
  }
}

TEST(KnownHeader, LengthsNumbersAndChecksumsDoNotCount) {
  auto bytes = from_hex(vectors::kTcpIpv4);
  auto header = known(bytes);
  constexpr std::size_t kIp = 14;
  constexpr std::size_t kTcp = kIp + 20;
  // Identification, checksum; sequence number, acknowledgment, flags, window, checksum, urgent.
  for (const auto offset : {kIp + 4, kIp + 5, kIp + 10, kIp + 11, kTcp + 4, kTcp + 7, kTcp + 8,
                            kTcp + 11, kTcp + 13, kTcp + 14, kTcp + 16, kTcp + 19}) {
    bytes[offset] ^= std::byte{0x11};
  }
  bytes.resize(bytes.size() - 1);
  bytes[kIp + 3] = static_cast<std::byte>(bytes.size() - kIp);
  const auto frame = Frame::from_bytes(bytes);
  const auto* packet = header.parse(frame);
  ASSERT_NE(packet, nullptr);
  EXPECT_EQ(*packet, classify(frame));
}

TEST(KnownHeader, TcpFlagsCountIfTheyAreToCount) {
  auto bytes = from_hex(vectors::kTcpIpv4);
  auto header = known(bytes, true);
  EXPECT_NE(header.parse(Frame::from_bytes(bytes)), nullptr);
  bytes[14 + 20 + 13] ^= std::byte{1};
  EXPECT_EQ(header.parse(Frame::from_bytes(bytes)), nullptr);
}

TEST(KnownHeader, FragmentsOtherProtocolsAndRoceAreNotKnown) {
  for (const auto hex : {vectors::kIpv6Fragment, vectors::kIcmpPaddedTo60}) {
    EXPECT_FALSE(KnownHeader::can_be_known(classify(Frame::from_bytes(from_hex(hex)))));
  }
  auto roce = from_hex(vectors::kUdpIpv4);
  roce[36] = std::byte{0x12};
  roce[37] = std::byte{0xB7};
  EXPECT_FALSE(KnownHeader::can_be_known(classify(Frame::from_bytes(roce))));
}

TEST(KnownHeader, NothingIsKnownAtFirst) {
  KnownHeader header;
  EXPECT_EQ(header.parse(Frame::from_bytes(from_hex(vectors::kUdpIpv4))), nullptr);
}

}  // namespace
}  // namespace softhca::ethernet
