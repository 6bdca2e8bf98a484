// The formats: what is written is read, and nothing else is.
#include "trunk/datagram.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "trunk/reassembly.h"
#include "trunk/replay_window.h"

namespace softhca::trunk {
namespace {

const Key kKey = key_of("sixteen characters or more");

std::vector<std::byte> bytes_of(std::span<const std::byte> from) {
  return {from.begin(), from.end()};
}

TEST(TrunkDatagramTest, AHeadIsReadAsItWasWritten) {
  const Head head{.kind = Kind::kFrames,
                  .from_joiner = true,
                  .fabric = 0x0102030405060708,
                  .sender = 0x1112131415161718,
                  .sequence = 0x2122232425262728,
                  .ack = 0x3132333435363738};
  Draft draft;
  draft.start(head);
  const auto datagram = draft.seal(kKey);
  EXPECT_EQ(datagram.size(), kOverhead);
  EXPECT_EQ(parse_head(datagram), head);
}

TEST(TrunkDatagramTest, OtherVersionsAndKindsAreNoDatagrams) {
  Draft draft;
  draft.start({.kind = Kind::kAck});
  const auto good = bytes_of(draft.seal(kKey));
  ASSERT_TRUE(parse_head(good));
  for (const std::size_t at : {0u, 1u, 2u, 3u, 4u, 5u, 6u}) {
    auto bad = good;
    bad[at] ^= std::byte{0x40};
    EXPECT_FALSE(parse_head(bad)) << at;
  }
  EXPECT_FALSE(parse_head(std::span(good).first(kOverhead - 1)));
  EXPECT_FALSE(parse_head(std::vector<std::byte>(kDatagramMax + 1, std::byte{0})));
}

TEST(TrunkDatagramTest, TheTagCoversEveryByte) {
  Draft draft;
  draft.start({.kind = Kind::kFrames, .sequence = 7});
  draft.put(std::vector<std::byte>(100, std::byte{5}));
  const auto good = bytes_of(draft.seal(kKey));
  EXPECT_TRUE(opens(good, kKey));
  EXPECT_FALSE(opens(good, key_of("another key, as long as it")));
  for (std::size_t at = 0; at != good.size(); ++at) {
    auto bad = good;
    bad[at] ^= std::byte{1};
    EXPECT_FALSE(opens(bad, kKey)) << at;
  }
}

TEST(TrunkDatagramTest, KeysOfDifferentPurposesDiffer) {
  EXPECT_NE(derive(kKey, "a"), derive(kKey, "b"));
  const std::array context = {std::byte{1}};
  EXPECT_NE(derive(kKey, "a"), derive(kKey, "a", context));
  EXPECT_NE(key_of("sixteen characters or more"), key_of("sixteen characters or mor"));
  EXPECT_NE(fabric_id_of("default"), fabric_id_of("lab"));
}

TEST(TrunkDatagramTest, BodiesAreReadAsTheyWereWritten) {
  Hello hello{.nonce = random_nonce(), .cookie = random_nonce(), .blocks = {}};
  hello.blocks.set(0).set(7).set(255);
  Draft draft;
  draft.start({.kind = Kind::kHello});
  put(draft, hello);
  const auto read = parse_hello(body_of(draft.seal(kKey)));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->nonce, hello.nonce);
  EXPECT_EQ(read->cookie, hello.cookie);
  EXPECT_EQ(read->blocks, hello.blocks);

  Members members;
  members[3].set(1);
  members[200].set(254).set(9);
  members[201];
  draft.start({.kind = Kind::kMembers});
  put(draft, members);
  draft.pad(kDatagramMin);
  EXPECT_EQ(parse_members(body_of(draft.seal(kKey))), members);
}

TEST(TrunkDatagramTest, EveryAnswerIsShorterThanAHello) {
  Draft draft;
  draft.start({.kind = Kind::kHello});
  put(draft, Hello{});
  const auto hello = draft.size();
  draft.start({.kind = Kind::kWelcome});
  put(draft, Welcome{});
  EXPECT_LT(draft.size(), hello);
}

TEST(TrunkDatagramTest, MembersThatDoNotFitAreRefused) {
  Members members;
  members[3].set(1);
  Draft draft;
  draft.start({.kind = Kind::kMembers});
  put(draft, members);
  auto body = bytes_of(body_of(draft.seal(kKey)));
  ASSERT_TRUE(parse_members(body));
  EXPECT_FALSE(parse_members(std::span(body).first(body.size() - 1)));
  body[0] = std::byte{2};
  EXPECT_FALSE(parse_members(body));
  body.resize(kDatagramMax, std::byte{0});
  body[0] = std::byte{kBlocksMax + 1};
  EXPECT_FALSE(parse_members(body));
  EXPECT_FALSE(parse_members({}));
}

TEST(TrunkDatagramTest, FramesThatDoNotFitAreRefused) {
  const std::array<std::byte, 6> body = {std::byte{0}, std::byte{2}, std::byte{7},
                                         std::byte{8}, std::byte{0}, std::byte{1}};
  std::span<const std::byte> rest(body);
  EXPECT_THAT(next_frame(rest), testing::ElementsAre(std::byte{7}, std::byte{8}));
  EXPECT_TRUE(next_frame(rest).empty());
  EXPECT_EQ(rest.size(), 2u);
}

Piece piece(std::uint32_t frame, std::uint32_t total, std::uint32_t offset,
            std::span<const std::byte> bytes) {
  return {.frame = frame, .total = total, .offset = offset, .bytes = bytes};
}

TEST(TrunkDatagramTest, PiecesInAnyOrderMakeTheFrame) {
  std::vector<std::byte> whole(3000);
  for (std::size_t i = 0; i != whole.size(); ++i) whole[i] = static_cast<std::byte>(i * 7);
  const std::span all(whole);
  Reassembly reassembly;
  EXPECT_TRUE(reassembly.add(piece(1, 3000, 2000, all.subspan(2000))).empty());
  EXPECT_TRUE(reassembly.add(piece(1, 3000, 0, all.first(1000))).empty());
  const auto made = reassembly.add(piece(1, 3000, 1000, all.subspan(1000, 1000)));
  EXPECT_TRUE(std::ranges::equal(made, whole));
}

TEST(TrunkDatagramTest, TheOldestIncompleteFrameMakesRoom) {
  const std::vector<std::byte> half(50);
  Reassembly reassembly;
  for (std::uint32_t frame = 0; frame != Reassembly::kFrames; ++frame) {
    EXPECT_TRUE(reassembly.add(piece(frame, 100, 0, half)).empty());
  }
  EXPECT_EQ(reassembly.lost(), 0u);
  EXPECT_TRUE(reassembly.add(piece(99, 100, 0, half)).empty());
  EXPECT_EQ(reassembly.lost(), 1u);
  EXPECT_EQ(reassembly.add(piece(1, 100, 50, half)).size(), 100u) << "it is not the oldest";
}

TEST(TrunkDatagramTest, PiecesBeyondTheirFrameAreRefused) {
  Draft draft;
  const auto body = [&](std::uint32_t total, std::uint32_t offset, std::size_t size) {
    draft.start({.kind = Kind::kPiece});
    draft.put_u32(1);
    draft.put_u32(total);
    draft.put_u32(offset);
    draft.put(std::vector<std::byte>(size));
    return bytes_of(body_of(draft.seal(kKey)));
  };
  EXPECT_TRUE(parse_piece(body(100, 90, 10)));
  EXPECT_FALSE(parse_piece(body(100, 91, 10)));
  EXPECT_FALSE(parse_piece(body(100, 101, 1)));
  EXPECT_FALSE(parse_piece(body(100, 0xffffffff, 10)));
  EXPECT_FALSE(parse_piece(body(100, 0, 0)));
  const std::vector<std::byte> bytes(10);
  Reassembly reassembly;
  EXPECT_TRUE(reassembly.add(piece(1, Reassembly::kFrameMax + 1, 0, bytes)).empty());
}

TEST(TrunkDatagramTest, ASequenceNumberIsAcceptedOnce) {
  ReplayWindow window;
  EXPECT_FALSE(window.is_new(0));
  for (const std::uint64_t number : {1, 2, 5, 3}) {
    EXPECT_TRUE(window.is_new(number)) << number;
    window.note(number);
    EXPECT_FALSE(window.is_new(number)) << number;
  }
  EXPECT_TRUE(window.is_new(4));
  window.note(5 + ReplayWindow::kSize);
  EXPECT_FALSE(window.is_new(4)) << "too late";
  EXPECT_FALSE(window.is_new(5)) << "too late";
  EXPECT_TRUE(window.is_new(6));
  window.note(10 * ReplayWindow::kSize);
  EXPECT_TRUE(window.is_new(10 * ReplayWindow::kSize - 1));
}

}  // namespace
}  // namespace softhca::trunk
