#include "wire/frame_reader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

#include "frame_bytes.h"

namespace softhca::wire {
namespace {

/// A frame of a head, two segments and a tail: 60, 100, 90 and 6 bytes.
class FrameReaderTest : public ::testing::Test {
 protected:
  FrameReaderTest() {
    std::memset(frame.resize_head(60).data(), 0x11, 60);
    for (std::size_t i = 0; i != memory.size(); ++i) memory[i] = std::byte(i * 7 + 1);
    EXPECT_TRUE(frame.add_segment(std::span(memory).first(100)));
    EXPECT_TRUE(frame.add_segment(std::span(memory).last(90)));
    std::memset(frame.resize_tail(6).data(), 0x22, 6);
  }

  std::vector<std::byte> memory = std::vector<std::byte>(300);
  Frame frame;
};

TEST_F(FrameReaderTest, PortionsOfAnySizeAreTheFrame) {
  const auto whole = bytes_of(frame);
  for (std::size_t from = 0; from <= whole.size(); from += 13) {
    for (std::size_t portion = 1; portion <= whole.size(); portion += 1 + portion / 4) {
      FrameReader reader(frame, from);
      std::vector<std::byte> got(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(from));
      while (got.size() != whole.size()) {
        reader.read(std::min(portion, whole.size() - got.size()),
                    [&](std::span<const std::byte> piece) {
                      EXPECT_FALSE(piece.empty());
                      got.insert(got.end(), piece.begin(), piece.end());
                    });
      }
      ASSERT_EQ(got, whole) << from << ' ' << portion;
    }
  }
}

TEST_F(FrameReaderTest, APieceIsNotReadAgain) {
  FrameReader reader(frame, 70);
  std::vector<const std::byte*> pieces;
  const auto note = [&](std::span<const std::byte> piece) { pieces.push_back(piece.data()); };
  for (int i = 0; i != 3; ++i) reader.read(60, note);
  const auto* const second = &memory[memory.size() - 90];
  EXPECT_EQ(pieces, (std::vector<const std::byte*>{&memory[10], &memory[70], second, second + 30}));
}

}  // namespace
}  // namespace softhca::wire
