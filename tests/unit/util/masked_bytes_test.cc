#include "util/masked_bytes.h"

#include <gtest/gtest.h>

#include <vector>

namespace softhca::util {
namespace {

using Bytes = std::vector<std::byte>;

TEST(MaskedBytes, EachBitCountsWhereTheMaskHasAOne) {
  Bytes bytes(32);
  Bytes mask(32);
  for (std::size_t i = 0; i != bytes.size(); ++i) {
    bytes[i] = std::byte(i * 11);
    mask[i] = std::byte(i * 29);
  }
  MaskedBytes<32> masked;
  masked.set(bytes, mask);
  for (std::size_t bit = 0; bit != 256; ++bit) {
    auto other = bytes;
    other[bit / 8] ^= std::byte(1u << bit % 8);
    const bool counts = (mask[bit / 8] & std::byte(1u << bit % 8)) != std::byte{};
    EXPECT_EQ(masked.match(other.data()), !counts) << bit;
    EXPECT_EQ(masked.match_all(other.data()), !counts) << bit;
    EXPECT_EQ(masked.value()[bit / 8], bytes[bit / 8] & mask[bit / 8]);
  }
}

TEST(MaskedBytes, BytesBehindThoseThatWereSetAreIgnored) {
  const Bytes bytes(20, std::byte{7});
  const Bytes mask(20, std::byte{0xFF});
  MaskedBytes<96> masked;
  masked.set(bytes, mask);
  Bytes other(32, std::byte{9});
  std::ranges::copy(bytes, other.begin());
  EXPECT_TRUE(masked.match(other.data()));
  other[19] = std::byte{8};
  EXPECT_FALSE(masked.match(other.data()));
}

}  // namespace
}  // namespace softhca::util
