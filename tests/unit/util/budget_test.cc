#include "util/budget.h"

#include <gtest/gtest.h>

#include <utility>

namespace softhca::util {
namespace {

TEST(Budget, AReservationReducesTheBudgetUntilItEnds) {
  Budget budget(10);
  {
    const auto six = budget.reserve(6);
    ASSERT_TRUE(six);
    EXPECT_EQ(budget.left(), 4u);
    EXPECT_FALSE(budget.reserve(5));
    EXPECT_TRUE(budget.reserve(4));
  }
  EXPECT_EQ(budget.left(), 10u);
  EXPECT_EQ(budget.total(), 10u);
}

TEST(Budget, AReservationThatMovesIsGivenBackOnce) {
  Budget budget(10);
  {
    auto first = *budget.reserve(3);
    Budget::Reservation second(std::move(first));
    first = std::move(second);
    EXPECT_EQ(budget.left(), 7u);
  }
  EXPECT_EQ(budget.left(), 10u);
}

TEST(Budget, AReservationThatIsReplacedIsGivenBack) {
  Budget budget(10);
  auto kept = *budget.reserve(3);
  kept = *budget.reserve(2);
  EXPECT_EQ(budget.left(), 8u);
  kept = {};
  EXPECT_EQ(budget.left(), 10u);
}

}  // namespace
}  // namespace softhca::util
