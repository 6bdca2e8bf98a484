// A frame is copied unchanged, whatever of it is deferred, and wherever it goes.
#include "ethernet/frame_copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "util/endian.h"
#include "wire/checksum.h"
#include "wire/deferred_checksum.h"

namespace softhca::ethernet {
namespace {

using wire::ChecksumSum;
using wire::Deferred;
using wire::Frame;

TEST(CopyFrame, CopiesAllBytesToWhereThePayloadLies) {
  for (const std::size_t head : {0, 5, 42, 70, 190}) {
    std::vector<std::byte> memory(600);
    for (std::size_t i = 0; i != memory.size(); ++i) memory[i] = std::byte(i * 7);
    Frame frame;
    std::ranges::fill(frame.resize_head(head), std::byte{0xEE});
    ASSERT_TRUE(frame.add_segment(std::span(memory).subspan(200, 100)));
    ASSERT_TRUE(frame.add_segment(std::span(memory).subspan(400, 33)));
    std::ranges::fill(frame.resize_tail(4), std::byte{0xDD});
    std::vector<std::byte> expected(frame.size());
    frame.copy_to(expected);
    auto* const to = memory.data() + 190 - head;
    copy_frame(frame, to);
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), to)) << head;
  }
}

TEST(CopyFrame, AChecksumIsMadeWhereThePayloadIsCopied) {
  for (const std::size_t size : {1, 20, 255, 256, 257, 1458, 9000}) {
    const Deferred one(size);
    std::vector<std::byte> bytes(50 + size);
    copy_frame(one.frame, bytes.data());
    EXPECT_EQ(bytes, one.expected) << size;
    copy_frame(one.frame, bytes.data());
    EXPECT_EQ(bytes, one.expected) << size << " a second time";
  }
}

TEST(CopyFrame, AChecksumIsThatOfWhatItsSenderHadWhereItGoesToThatMemory) {
  constexpr std::size_t kSize = 1000;
  for (const int away : {-1050, -1000, -999, -500, -1, 0, 1050}) {
    std::vector<std::byte> memory(4000);
    for (std::size_t i = 0; i != memory.size(); ++i) memory[i] = std::byte(i * 13);
    auto* const to = memory.data() + 1500 + away;
    Frame frame;
    const auto payload = std::span(memory).subspan(1550, kSize);
    std::ranges::fill(frame.begin(50, payload), std::byte{0xEE});
    frame.defer_checksum({.sum = 7, .at = 40, .zero = 0});
    copy_frame(frame, to);
    ChecksumSum sum;
    sum.add_u16(7);
    sum.add({to + 50, kSize});
    EXPECT_EQ(util::load_be16(to + 40), sum.checksum()) << away;
  }
}

// The fast path applies only if the payload is not overwritten while it is summed.
TEST(CopyFrame, TheFastPathCopiesAsTheSlowOneOrDoesNothing) {
  constexpr std::size_t kSize = 300;
  for (int away = -400; away <= 400; away += 7) {
    // Nearer behind its payload, the head would overwrite payload that is not copied yet.
    if (away >= 300 && away < 350) continue;
    std::vector<std::byte> memory(1500);
    for (std::size_t i = 0; i != memory.size(); ++i) memory[i] = std::byte(i * 13);
    const auto before = memory;
    const auto payload = std::span(memory).subspan(600, kSize);
    auto* const to = memory.data() + 550 + away;
    Frame frame;
    std::ranges::fill(frame.begin(50, payload), std::byte{0xEE});
    frame.defer_checksum({.sum = 7, .at = 40, .zero = 0});
    std::vector<std::byte> expected(frame.size());
    Frame(frame).copy_to(expected);
    const bool apart = static_cast<std::size_t>(std::abs(away)) >= kSize;
    ASSERT_EQ(copy_frame_fast(frame, *frame.deferred_checksum(), to), apart) << away;
    if (!apart) {
      ASSERT_EQ(memory, before) << away;
      continue;
    }
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), to)) << away;
  }
}

}  // namespace
}  // namespace softhca::ethernet
