// Stored results of atomics, repeated for duplicates (IBTA 9.7.5.1.3).

#include "rdma/atomic_results.h"

#include <gtest/gtest.h>

namespace softhca::rdma {
namespace {

using wire::Psn;

TEST(AtomicResults, TheLastOnesAreKnownByTheirPsn) {
  AtomicResults results;
  results.grow(4);
  EXPECT_EQ(results.find(Psn(0)), nullptr) << "nothing was answered yet";
  for (std::uint32_t i = 0; i < 6; ++i) results.remember(Psn(0xFFFFFE + i), 100 + i);
  EXPECT_EQ(results.find(Psn(0xFFFFFE)), nullptr);
  EXPECT_EQ(results.find(Psn(0xFFFFFF)), nullptr);
  for (std::uint32_t i = 2; i < 6; ++i) {
    ASSERT_NE(results.find(Psn(0xFFFFFE + i)), nullptr) << i;
    EXPECT_EQ(*results.find(Psn(0xFFFFFE + i)), 100 + i);
  }
}

TEST(AtomicResults, TheNewerOfTwoWithTheSamePsnIsRepeated) {
  for (std::size_t between = 0; between < 3; ++between) {
    AtomicResults results;
    results.grow(4);
    results.remember(Psn(7), 1);
    for (std::size_t i = 0; i < between; ++i) results.remember(Psn(100), 50);
    results.remember(Psn(7), 2);  // 2^24 packets later
    ASSERT_NE(results.find(Psn(7)), nullptr);
    EXPECT_EQ(*results.find(Psn(7)), 2u);
  }
}

TEST(AtomicResults, GrowingForgetsNothing) {
  for (std::uint32_t filled = 0; filled < 5; ++filled) {
    AtomicResults results;
    results.grow(3);
    for (std::uint32_t i = 0; i < filled; ++i) results.remember(Psn(i), 100 + i);
    results.grow(5);
    for (std::uint32_t i = filled; i < filled + 2; ++i) results.remember(Psn(i), 100 + i);
    for (std::uint32_t i = filled < 3 ? 0 : filled - 3; i < filled + 2; ++i) {
      ASSERT_NE(results.find(Psn(i)), nullptr) << i;
      EXPECT_EQ(*results.find(Psn(i)), 100 + i);
    }
  }
}

TEST(AtomicResults, ClearForgetsAll) {
  AtomicResults results;
  results.grow(2);
  results.remember(Psn(7), 1);
  results.clear();
  results.grow(2);
  EXPECT_EQ(results.find(Psn(7)), nullptr);
}

}  // namespace
}  // namespace softhca::rdma
