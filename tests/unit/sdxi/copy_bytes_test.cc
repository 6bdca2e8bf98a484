#include "sdxi/copy_bytes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace softhca::sdxi {
namespace {

/// Copies with `whole` as the descriptor's size, and checks every byte in and around the target.
void expect_copied(std::size_t from, std::size_t to, std::size_t size, std::uint64_t whole) {
  std::vector<std::byte> source(from + size + 64), target(to + size + 64, std::byte{0xee});
  for (std::size_t i = 0; i < source.size(); ++i)
    source[i] = static_cast<std::byte>(i * 7 + i / 256);
  copy_bytes(&target[to], &source[from], size, whole);
  const auto outside = [](std::byte b) { return b == std::byte{0xee}; };
  const auto begin = target.begin() + static_cast<std::ptrdiff_t>(to);
  const auto end = begin + static_cast<std::ptrdiff_t>(size);
  EXPECT_TRUE(std::all_of(target.begin(), begin, outside)) << from << " " << to << " " << size;
  EXPECT_TRUE(std::equal(begin, end, source.begin() + static_cast<std::ptrdiff_t>(from)))
      << from << " " << to << " " << size;
  EXPECT_TRUE(std::all_of(end, target.end(), outside)) << from << " " << to << " " << size;
}

TEST(CopyBytesTest, EveryByteAndNoOther) {
  for (const auto whole : {std::uint64_t{1}, streaming_from()}) {
    for (const std::size_t from : {0, 1, 17, 63}) {
      for (const std::size_t to : {0, 1, 40, 63}) {
        for (const std::size_t size : {1, 15, 63, 64, 65, 127, 128, 1000, 4096, 70001}) {
          expect_copied(from, to, size, whole);
        }
      }
    }
  }
}

TEST(CopyBytesTest, StreamingBeginsBeyondTheUsualSizes) {
  EXPECT_GE(streaming_from(), std::uint64_t{1} << 20);
}

}  // namespace
}  // namespace softhca::sdxi
