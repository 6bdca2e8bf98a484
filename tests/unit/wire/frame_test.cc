#include "wire/frame.h"

#include <gtest/gtest.h>

#include "deferred_checksum.h"
#include "frame_bytes.h"
#include "hex.h"
#include "util/endian.h"
#include "wire/ib_header.h"

namespace softhca::wire {
namespace {

std::vector<std::byte> counted(std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i != size; ++i) bytes[i] = std::byte(i * 7 + 1);
  return bytes;
}

TEST(Frame, IsItsHeadSegmentsAndTailInOrder) {
  const auto a = from_hex("0102"), b = from_hex("0304");
  Frame frame;
  std::memset(frame.resize_head(2).data(), 0xaa, 2);
  ASSERT_TRUE(frame.add_segment(a));
  ASSERT_TRUE(frame.add_segment(b));
  std::memset(frame.resize_tail(1).data(), 0xbb, 1);
  EXPECT_EQ(frame.size(), 7u);
  EXPECT_EQ(bytes_of(frame), from_hex("aaaa 0102 0304 bb"));
}

TEST(Frame, JoinsSegmentsThatContinueInMemory) {
  const auto bytes = counted(100);
  Frame frame;
  for (std::size_t i = 0; i != 100; i += 10) {
    ASSERT_TRUE(frame.add_segment(std::span(bytes).subspan(i, 10)));
  }
  EXPECT_EQ(frame.segments().size(), 1u);
  EXPECT_EQ(bytes_of(frame), bytes);
}

TEST(Frame, RefusesANinthSegment) {
  const auto bytes = counted(100);
  Frame frame;
  for (std::size_t i = 0; i != Frame::kSegmentsMax; ++i) {
    ASSERT_TRUE(frame.add_segment(std::span(bytes).subspan(i * 10, 5)));
  }
  EXPECT_FALSE(frame.add_segment(std::span(bytes).subspan(90, 5)));
  EXPECT_EQ(frame.size(), 5 * Frame::kSegmentsMax);
}

TEST(Frame, ForEachPieceGivesAnyRange) {
  const auto whole = counted(300);
  Frame frame;
  std::memcpy(frame.resize_head(50).data(), whole.data(), 50);
  const auto second = std::vector(whole.begin() + 150, whole.begin() + 295);
  ASSERT_TRUE(frame.add_segment(std::span(whole).subspan(50, 100)));
  ASSERT_TRUE(frame.add_segment(second));
  std::memcpy(frame.resize_tail(5).data(), whole.data() + 295, 5);
  for (std::size_t offset = 0; offset <= whole.size(); ++offset) {
    for (std::size_t length = 0; offset + length <= whole.size(); length += 1 + length / 8) {
      std::vector<std::byte> got;
      frame.for_each_piece(offset, length, [&](std::span<const std::byte> piece) {
        got.insert(got.end(), piece.begin(), piece.end());
      });
      ASSERT_TRUE(std::equal(got.begin(), got.end(), whole.begin() + long(offset),
                             whole.begin() + long(offset + length)));
    }
  }
}

TEST(Frame, ACopyRefersToTheSameForeignMemory) {
  const auto payload = counted(64);
  Frame frame;
  (void)frame.resize_head(14);
  ASSERT_TRUE(frame.add_segment(payload));
  const Frame copy = frame;
  ASSERT_EQ(copy.segments().size(), 1u);
  EXPECT_EQ(copy.segments()[0].data(), payload.data());
}

TEST(Frame, ACopyHasItsOwnOfWhatTheFrameOwns) {
  const auto foreign = counted(16);
  Frame copy;
  {
    Frame frame;
    auto owned = frame.own_payload(32);
    std::memset(owned.data(), 0x5a, owned.size());
    ASSERT_TRUE(frame.add_segment(foreign));
    copy = frame;
    std::memset(owned.data(), 0, owned.size());
  }
  ASSERT_EQ(copy.segments().size(), 2u);
  EXPECT_EQ(copy.segments()[1].data(), foreign.data());
  EXPECT_EQ(bytes_of(copy)[0], std::byte{0x5a});
  EXPECT_EQ(bytes_of(copy)[31], std::byte{0x5a});
}

TEST(Frame, AMoveKeepsOwnedMemoryAndClearsTheSource) {
  Frame frame;
  std::memset(frame.own_payload(100).data(), 0x77, 100);
  const auto* at = frame.segments()[0].data();
  Frame moved = std::move(frame);
  EXPECT_EQ(moved.segments()[0].data(), at);
  EXPECT_EQ(moved.size(), 100u);
  EXPECT_EQ(frame.size(), 0u);  // NOLINT(bugprone-use-after-move): cleared, as documented
  frame = moved;
  EXPECT_EQ(bytes_of(frame), bytes_of(moved));
}

TEST(Frame, OwnSegmentsOutlivesTheMemoryReferredTo) {
  Frame frame;
  const auto expected = counted(200);
  {
    auto a = std::vector(expected.begin(), expected.begin() + 120);
    auto b = std::vector(expected.begin() + 120, expected.end());
    ASSERT_TRUE(frame.add_segment(a));
    ASSERT_TRUE(frame.add_segment(b));
    frame.own_segments();
    std::fill(a.begin(), a.end(), std::byte{0});
    std::fill(b.begin(), b.end(), std::byte{0});
  }
  EXPECT_EQ(bytes_of(frame), expected);
  frame.own_segments();
  EXPECT_EQ(bytes_of(frame), expected);
}

TEST(Frame, BeginsWithAHeadAndOnePieceOfPayload) {
  const auto payload = from_hex("0a0b0c0d");
  Frame frame;
  frame.own_payload(100);
  frame.resize_tail(4);
  frame.set_flow(7);
  std::ranges::fill(frame.begin(3, payload), std::byte{1});
  EXPECT_EQ(frame.size(), 7u);
  EXPECT_EQ(frame.flow(), 0u);
  std::vector<std::byte> bytes(7);
  frame.copy_to(bytes);
  EXPECT_EQ(bytes, from_hex("0101010a0b0c0d"));
  EXPECT_FALSE(frame.owns_segments());
}

TEST(Frame, ItsFlowIsForgottenBeforeBytesChange) {
  const auto payload = from_hex("0a0b");
  Frame frame;
  frame.begin(4, payload);
  frame.set_flow(7);
  const Frame copy = frame;
  EXPECT_EQ(copy.flow(), 7u);
  (void)frame.mutable_head();
  EXPECT_EQ(frame.flow(), 0u);
  EXPECT_EQ(copy.flow(), 7u);
}

TEST(Frame, AChecksumIsMadeWhenItsBytesAreWanted) {
  for (const std::size_t size : {1, 20, 255, 256, 257, 1458, 9000}) {
    std::vector<std::byte> bytes(50 + size);
    Deferred copied(size);
    EXPECT_TRUE(copied.frame.checksum_made());
    EXPECT_EQ(copied.frame.headers(), nullptr);
    const Frame other = copied.frame;
    copied.frame.copy_to(bytes);
    EXPECT_EQ(bytes, copied.expected) << size;
    other.copy_to(bytes);
    EXPECT_EQ(bytes, copied.expected) << size << " of a copy of the frame";
    Deferred changed(size);
    EXPECT_TRUE(
        std::ranges::equal(changed.frame.mutable_head(), std::span(changed.expected).first(50)));
    Deferred piece(size);
    const auto* const at = piece.frame.one_piece(40, 2);
    ASSERT_NE(at, nullptr);
    EXPECT_TRUE(std::equal(at, at + 2, piece.expected.begin() + 40)) << size;
    Deferred owned(size);
    EXPECT_EQ(owned.frame.own_segments(), size);
    owned.frame.copy_to(bytes);
    EXPECT_EQ(bytes, owned.expected) << size;
  }
}

// RFC 768: "If the computed checksum is zero, it is transmitted as all ones".
TEST(Frame, AChecksumOfZeroIsWhatItsProtocolMakesOfIt) {
  for (const std::uint16_t zero : {0, 0xffff}) {
    const std::array payload = {std::byte{0xff}, std::byte{0xfe}};
    Frame frame;
    std::ranges::fill(frame.begin(4, payload), std::byte{0});
    frame.defer_checksum({.sum = 1, .at = 2, .zero = zero});
    EXPECT_EQ(util::load_be16(frame.head().data() + 2), zero);
  }
}

// A path's headers stay in the head until something else is written there.
TEST(Frame, IsOfAPathUntilItsHeadIsSomethingElse) {
  IbAddress address;
  address.source_gid = Gid::from_ipv4(0x0A000001);
  address.destination_gid = Gid::from_ipv4(0x0A000002);
  const IbHeader header(address);
  Frame frame;
  EXPECT_EQ(frame.flow(), 0u);
  const auto begin = [&] { header.begin(Opcode::RC_ACKNOWLEDGE, 0, frame); };
  begin();
  const auto number = frame.flow();
  const auto expected = bytes_of(frame);
  EXPECT_NE(number, 0u);

  const auto leave_by = [&](const char* how, auto&& change) {
    begin();
    change();
    ASSERT_EQ(frame.flow(), 0u) << how;
    begin();
    EXPECT_EQ(frame.flow(), number) << how;
    EXPECT_EQ(bytes_of(frame), expected) << how;
  };
  ASSERT_NO_FATAL_FAILURE(
      leave_by("changed bytes", [&] { std::ranges::fill(frame.mutable_head(), std::byte{0xEE}); }));
  ASSERT_NO_FATAL_FAILURE(leave_by("cleared, and other bytes", [&] {
    frame.clear();
    std::ranges::fill(frame.resize_head(64), std::byte{0xEE});
  }));
  ASSERT_NO_FATAL_FAILURE(leave_by("a copy of other bytes", [&] {
    frame = Frame::from_bytes(std::vector<std::byte>(64, std::byte{0xEE}));
  }));
  ASSERT_NO_FATAL_FAILURE(leave_by("begun with bytes", [&] {
    static constexpr std::array kOneByte{std::byte{1}};
    std::ranges::fill(frame.begin(64, kOneByte), std::byte{0xEE});
  }));
  ASSERT_NO_FATAL_FAILURE(leave_by("moved away", [&] { const Frame other = std::move(frame); }));

  begin();
  const Frame copy = frame;
  EXPECT_EQ(copy.flow(), number);
}

TEST(Frame, FromBytesSplitsAtTheHeadsCapacity) {
  for (const std::size_t size : {0u, 1u, 191u, 192u, 193u, 9000u}) {
    const auto bytes = counted(size);
    const auto frame = Frame::from_bytes(bytes);
    EXPECT_EQ(frame.head().size(), std::min<std::size_t>(size, Frame::kHeadCapacity));
    EXPECT_EQ(bytes_of(frame), bytes);
  }
}

}  // namespace
}  // namespace softhca::wire
