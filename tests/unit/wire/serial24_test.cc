#include "wire/serial24.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <vector>

namespace softhca::wire {
namespace {

constexpr std::uint32_t kHalf = Psn::kModulus / 2;

// All numbers near a power of two, where a carry goes through or ends, and a few thousand between.
TEST(Serial24, ANumberHasItsSuccessorAndPredecessorModulo2To24) {
  const auto step = [](std::uint32_t i) {
    const auto low = std::bit_floor(std::max(i, 1u));
    return i - low < 256 || 2 * low - i <= 256 ? 1u : 1021u;
  };
  for (std::uint32_t i = 0; i < Psn::kModulus; i += step(i)) {
    const Psn psn(i);
    ASSERT_EQ(psn.next().value(), (i + 1) % Psn::kModulus);
    ASSERT_EQ(psn.next().previous(), psn);
    ASSERT_TRUE(psn.before(psn.next()));
    ASSERT_FALSE(psn.next().before(psn));
    ASSERT_EQ(psn.next() - psn, 1);
    ASSERT_EQ(psn - psn.next(), -1);
  }
}

TEST(Serial24, TheConstructorTakesTheLow24Bits) { EXPECT_EQ(Psn(0x12345678).value(), 0x345678u); }

// From numbers at every edge: all distances where a carry or a sign changes, and a few thousand
// between.
TEST(Serial24, DistanceIsTheShortWayRoundTheCircle) {
  const std::vector<std::uint32_t> froms = {0, 1, 0x7fffff, 0x800000, 0x800001, 0xfffffe, 0xffffff};
  const auto step = [](std::uint32_t distance) {
    const auto to_edge = std::min({distance, Psn::kModulus - distance,
                                   distance < kHalf ? kHalf - distance : distance - kHalf});
    return to_edge <= 2048 ? 1u : 1021u;
  };
  for (const auto from : froms) {
    for (std::uint32_t distance = 0; distance < Psn::kModulus; distance += step(distance)) {
      const Psn a(from);
      const Psn b = a + distance;
      const auto expected = distance < kHalf ? static_cast<std::int32_t>(distance)
                                             : static_cast<std::int32_t>(distance) -
                                                   static_cast<std::int32_t>(Psn::kModulus);
      ASSERT_EQ(b - a, expected) << from << " " << distance;
      ASSERT_EQ(b.before(a), expected < 0);
      ASSERT_EQ(b - distance, a);
    }
  }
}

TEST(Serial24, WithinHoldsForTheCountNumbersFromTheFirst) {
  const Psn first(0xfffffe);
  EXPECT_FALSE(Psn(0xfffffd).within(first, 4));
  EXPECT_TRUE(Psn(0xfffffe).within(first, 4));
  EXPECT_TRUE(Psn(0xffffff).within(first, 4));
  EXPECT_TRUE(Psn(0).within(first, 4));
  EXPECT_TRUE(Psn(1).within(first, 4));
  EXPECT_FALSE(Psn(2).within(first, 4));
  EXPECT_FALSE(first.within(first, 0));
}

}  // namespace
}  // namespace softhca::wire
