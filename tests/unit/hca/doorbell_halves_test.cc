// Doorbells of two dwords, on pages of their own.
#include "hca/doorbell_halves.h"

#include <gtest/gtest.h>

#include <optional>

namespace softhca::hca {
namespace {

class DoorbellHalvesTest : public testing::Test {
 protected:
  DoorbellHalves halves{3};
};

TEST_F(DoorbellHalvesTest, ASecondHalfTakesTheFirstOneOfItsPage) {
  halves.put(1, 7);
  halves.put(2, 8);
  EXPECT_EQ(halves.take(0), std::nullopt);
  EXPECT_EQ(halves.take(2), 8u);
  EXPECT_EQ(halves.take(1), 7u);
}

TEST_F(DoorbellHalvesTest, AFirstHalfCountsOnce) {
  halves.put(1, 7);
  EXPECT_EQ(halves.take(1), 7u);
  EXPECT_EQ(halves.take(1), std::nullopt);
}

TEST_F(DoorbellHalvesTest, TheLastFirstHalfCounts) {
  halves.put(1, 7);
  halves.put(1, 0);
  EXPECT_EQ(halves.take(1), 0u);
}

TEST_F(DoorbellHalvesTest, AWholeDoorbellEndsTheFirstHalfOfItsPage) {
  halves.put(1, 7);
  halves.put(2, 8);
  halves.drop(1);
  EXPECT_EQ(halves.take(1), std::nullopt);
  EXPECT_EQ(halves.take(2), 8u);
}

TEST_F(DoorbellHalvesTest, AResetEndsAll) {
  halves.put(0, 7);
  halves.put(2, 8);
  halves.clear();
  EXPECT_EQ(halves.take(0), std::nullopt);
  EXPECT_EQ(halves.take(2), std::nullopt);
}

}  // namespace
}  // namespace softhca::hca
