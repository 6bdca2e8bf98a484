#include "ethernet/vlan_offload.h"

#include <gtest/gtest.h>

#include "ethernet/padding.h"
#include "ethernet/vectors.h"
#include "wire/frame_bytes.h"
#include "wire/hex.h"

namespace softhca::ethernet {
namespace {

using wire::EtherType;
using wire::Frame;
using wire::from_hex;

TEST(VlanOffload, InsertsTheTagBehindTheAddresses) {
  const auto bytes = from_hex(vectors::kTcpIpv4);
  auto frame = Frame::from_bytes(bytes);
  ASSERT_TRUE(insert_vlan(frame, EtherType::kVlan, 0x6123));
  EXPECT_EQ(frame.size(), bytes.size() + 4);
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.begin() + 12, bytes_of(frame).begin()));
  const auto tagged = bytes_of(frame);
  EXPECT_EQ(std::vector(tagged.begin() + 12, tagged.begin() + 18), from_hex("8100 6123 0800"));
  EXPECT_TRUE(std::equal(bytes.begin() + 14, bytes.end(), tagged.begin() + 18));
}

TEST(VlanOffload, InsertsServiceTagsToo) {
  const auto bytes = from_hex(vectors::kTcpIpv4);
  auto frame = Frame::from_bytes(bytes);
  ASSERT_TRUE(insert_vlan(frame, EtherType::kServiceVlan, 0x0064));
  const auto tagged = bytes_of(frame);
  EXPECT_EQ(std::vector(tagged.begin() + 12, tagged.begin() + 18), from_hex("88a8 0064 0800"));
}

TEST(VlanOffload, InsertNeedsRoomInTheHead) {
  const std::vector<std::byte> bytes(300);
  auto full = Frame::from_bytes(bytes);
  EXPECT_FALSE(insert_vlan(full, EtherType::kVlan, 1));
  EXPECT_EQ(full.size(), 300u);
  auto exact = Frame::from_bytes(std::span(bytes).first(188));
  EXPECT_TRUE(insert_vlan(exact, EtherType::kVlan, 1));
  auto small = Frame::from_bytes(std::span(bytes).first(13));
  EXPECT_FALSE(insert_vlan(small, EtherType::kVlan, 1));
}

TEST(Padding, ShortFramesBecomeSixtyBytesWithZeros) {
  const std::vector<std::byte> bytes(100, std::byte{0xaa});
  for (std::size_t head = 14; head != 70; ++head) {
    for (const std::size_t payload : {0u, 1u, 40u}) {
      Frame frame;
      std::memcpy(frame.resize_head(head).data(), bytes.data(), head);
      ASSERT_TRUE(frame.add_segment(std::span(bytes).first(payload)));
      const auto size = frame.size();
      pad_to_minimum(frame);
      ASSERT_EQ(frame.size(), std::max(size, kFrameSizeMin));
      const auto result = bytes_of(frame);
      for (std::size_t i = 0; i != result.size(); ++i) {
        ASSERT_EQ(result[i], i < size ? std::byte{0xaa} : std::byte{0});
      }
    }
  }
}

TEST(Padding, FindsRoomInAFrameOfManySegments) {
  const std::vector<std::byte> bytes(100, std::byte{0xaa});
  Frame frame;
  std::memset(frame.resize_head(14).data(), 0xaa, 14);
  for (std::size_t i = 0; i != Frame::kSegmentsMax; ++i) {
    ASSERT_TRUE(frame.add_segment(std::span(bytes).subspan(2 * i, 1)));
  }
  pad_to_minimum(frame);
  EXPECT_EQ(frame.size(), kFrameSizeMin);
  EXPECT_EQ(bytes_of(frame)[13 + Frame::kSegmentsMax], std::byte{0xaa});
  EXPECT_EQ(bytes_of(frame)[14 + Frame::kSegmentsMax], std::byte{0});
}

}  // namespace
}  // namespace softhca::ethernet
