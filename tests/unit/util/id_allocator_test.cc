#include "util/id_allocator.h"

#include <gtest/gtest.h>

#include <set>

namespace softhca::util {
namespace {

TEST(IdAllocator, HandsOutEveryNumberOnceAndThenNothing) {
  IdAllocator ids(3, 1000);
  std::set<std::uint32_t> seen;
  for (int i = 0; i < 1000; ++i) seen.insert(ids.allocate().value());
  EXPECT_EQ(seen.size(), 1000u);
  EXPECT_EQ(*seen.begin(), 3u);
  EXPECT_EQ(*seen.rbegin(), 1002u);
  EXPECT_FALSE(ids.allocate());
}

TEST(IdAllocator, AFreedNumberRestsWhileOthersAreLeft) {
  IdAllocator ids(0, 1000);
  const auto first = ids.allocate().value();
  ids.free(first);
  EXPECT_NE(ids.allocate().value(), first);
}

TEST(IdAllocator, NumbersStayDenseUnderChurn) {
  IdAllocator ids(0, 1u << 24);
  std::uint32_t highest = 0;
  for (int i = 0; i < 100000; ++i) {
    const auto id = ids.allocate().value();
    highest = std::max(highest, id);
    ids.free(id);
  }
  EXPECT_LE(highest, IdAllocator::kRest + 2);
}

TEST(IdAllocator, TheLastNumberIsReusedWhenNothingElseIsLeft) {
  IdAllocator ids(7, 1);
  ids.free(ids.allocate().value());
  EXPECT_EQ(ids.allocate().value(), 7u);
}

}  // namespace
}  // namespace softhca::util
