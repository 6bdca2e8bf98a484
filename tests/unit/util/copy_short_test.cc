#include "util/copy_short.h"

#include <gtest/gtest.h>

#include <vector>

namespace softhca::util {
namespace {

std::vector<std::uint8_t> numbers(std::size_t size) {
  std::vector<std::uint8_t> bytes(size);
  for (std::size_t i = 0; i != size; ++i) bytes[i] = static_cast<std::uint8_t>(i + 1);
  return bytes;
}

TEST(CopyShort, CopiesEverySizeAndNothingBesides) {
  const auto from = numbers(80);
  for (std::size_t size = 0; size != 64; ++size) {
    std::vector<std::uint8_t> to(80, 0);
    copy_short(to.data() + 8, from.data() + 3, size);
    for (std::size_t i = 0; i != to.size(); ++i) {
      const bool copied = i >= 8 && i < 8 + size;
      ASSERT_EQ(to[i], copied ? from[i - 8 + 3] : 0) << "byte " << i << " of " << size;
    }
  }
}

TEST(CopyShort, HeadersOfEverySizeAreCopiedAndNothingBesides) {
  const auto from = numbers(120);
  for (std::size_t size = 0; size != 100; ++size) {
    std::vector<std::uint8_t> to(120, 0);
    copy_header(to.data() + 8, from.data() + 3, size);
    for (std::size_t i = 0; i != to.size(); ++i) {
      const bool copied = i >= 8 && i < 8 + size;
      ASSERT_EQ(to[i], copied ? from[i - 8 + 3] : 0) << "byte " << i << " of " << size;
    }
  }
}

TEST(CopyShort, NoBytesNeedNoAddress) {
  copy_short(nullptr, nullptr, 0);
  copy_header(nullptr, nullptr, 0);
}

TEST(CopyShort, BothMayOverlap) {
  for (const auto copy : {copy_short, copy_header}) {
    for (std::size_t size = 0; size != 80; ++size) {
      for (std::size_t to = 0; to != 16; ++to) {
        const auto before = numbers(100);
        auto bytes = before;
        copy(bytes.data() + to, bytes.data() + 8, size);
        for (std::size_t i = 0; i != size; ++i) ASSERT_EQ(bytes[to + i], before[8 + i]) << size;
      }
    }
  }
}

}  // namespace
}  // namespace softhca::util
