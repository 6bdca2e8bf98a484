// A train of a large send must be cut into the packets that it represents, byte for byte.
#include "ethernet/large_send.h"

#include <gtest/gtest.h>

#include "ethernet/checksum_offload.h"
#include "ethernet/segmentation.h"
#include "ethernet/vectors.h"
#include "wire/hex.h"
#include "wire/train.h"

namespace softhca::ethernet {
namespace {

using wire::Frame;
using Packets = std::vector<std::vector<std::byte>>;

constexpr std::size_t kMss = 100;
constexpr std::size_t kPayload = 10 * kMss + 7;

class LargeSend : public ::testing::TestWithParam<std::string_view> {
 protected:
  LargeSend() : payload_(kPayload), headers_(wire::from_hex(GetParam())) {
    for (std::size_t i = 0; i != kPayload; ++i) payload_[i] = std::byte(i * 31 + i / 256);
    const auto info = classify(Frame::from_bytes(headers_));
    headers_.resize(info.l4_offset + info.l4_header_size);
    // CWR, PSH and FIN differ from packet to packet.
    if (info.l4 == L4Type::kTcp) headers_[info.l4_offset + 13] |= std::byte{0x89};
  }
  Segmenter segmenter() const { return *Segmenter::create(headers_, kPayload, kMss); }
  std::span<const std::byte> part(std::size_t offset, std::size_t size) const {
    return std::span(payload_).subspan(offset, size);
  }
  static void append(Packets& packets, const Frame& frame) {
    frame.copy_to(packets.emplace_back(frame.size()));
  }
  /// The packets, sent singly.
  Packets one_by_one(LargeSendChecksums checksums) {
    Packets packets;
    auto segmenter = this->segmenter();
    while (!segmenter.done()) {
      Frame frame;
      const auto at = segmenter.next(frame);
      EXPECT_TRUE(frame.add_segment(part(at.offset, at.size)));
      const auto info = classify(frame);
      if (checksums.l4) insert_l4_checksum(frame, info);
      if (checksums.l3) insert_l3_checksum(frame, info);
      append(packets, frame);
    }
    return packets;
  }
  /// The middle packets from number `first` as one train.
  Frame train(std::size_t first, LargeSendChecksums checksums) {
    auto segmenter = this->segmenter();
    Frame frame;
    (void)segmenter.next(frame);
    if (first != 0) {
      segmenter.skip(first - 1);
      (void)segmenter.next(frame);
    }
    const auto packets = segmenter.middles() + 1;
    EXPECT_TRUE(frame.add_segment(part(first * kMss, packets * kMss)));
    make_train(frame, static_cast<unsigned>(packets), kMss, checksums);
    segmenter.skip(segmenter.middles());
    Frame last;
    EXPECT_EQ(segmenter.next(last).size, kPayload % kMss);
    EXPECT_TRUE(segmenter.done());
    return frame;
  }

  std::vector<std::byte> payload_;
  std::vector<std::byte> headers_;
};

TEST_P(LargeSend, EachPacketOfATrainIsAsIfItTravelledAlone) {
  for (const LargeSendChecksums checksums : {LargeSendChecksums{false, false}, {true, true}}) {
    const auto packets = one_by_one(checksums);
    for (const std::size_t first : {0, 3}) {
      const auto all = train(first, checksums);
      ASSERT_EQ(all.packets(), 10 - first);
      EXPECT_EQ(all.size_of_all(), (10 - first) * packets[0].size());
      Packets cut;
      wire::for_each_packet(all, [&](const Frame& packet) { append(cut, packet); });
      EXPECT_EQ(
          cut, Packets(packets.begin() + static_cast<std::ptrdiff_t>(first), packets.begin() + 10));
    }
  }
}

TEST_P(LargeSend, PartsOfATrainAreTrains) {
  const auto packets = one_by_one({true, true});
  const auto all = train(0, {true, true});
  Packets cut;
  unsigned index = 0;
  for (const unsigned count : {3u, 1u, 4u, 2u}) {
    Frame some;
    wire::part(all, index, count, some);
    ASSERT_EQ(some.packets(), count);
    wire::for_each_packet(some, [&](const Frame& packet) { append(cut, packet); });
    index += count;
  }
  EXPECT_EQ(cut, Packets(packets.begin(), packets.begin() + 10));
}

INSTANTIATE_TEST_SUITE_P(Protocols, LargeSend,
                         ::testing::Values(vectors::kTcpIpv4, vectors::kUdpIpv4, vectors::kUdpIpv6,
                                           vectors::kTcpIpv6HopByHop, vectors::kTcpInTwoTags));

}  // namespace
}  // namespace softhca::ethernet
