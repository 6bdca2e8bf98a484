// The fuzzers' checks must detect what they watch for.
#include "oracle.h"

#include <gtest/gtest.h>

#include <vector>

#include "device_turn.h"

namespace softhca::fuzz {
namespace {

void burn(std::chrono::nanoseconds time) {
  const auto end = processor_time() + time;
  while (processor_time() < end) {
  }
}

TEST(FuzzOracle, ATurnThatIsLongInEachRunEndsTheProgram) {
  EXPECT_DEATH(run_input([] {
                 const Turn turn;
                 burn(Turn::kTimeMax * 11 / 10);
               }),
               "microseconds of processor time for one turn");
}

TEST(FuzzOracle, ATurnThatIsLongOnceIsTheMachines) {
  int runs = 0;
  run_input([&] {
    const Turn turn;
    if (++runs == 1) burn(Turn::kTimeMax * 11 / 10);
  });
  EXPECT_EQ(runs, 2);
  EXPECT_GE(costs.time, Turn::kTimeMax);
}

TEST(FuzzOracle, WorkBeyondOnePieceEndsTheProgram) {
  check_work(kPieceMax + 100, 100);
  EXPECT_DEATH(check_work(kPieceMax + 101, 100), "");
}

#ifdef SOFTHCA_SANITIZED_HEAP
TEST(FuzzOracle, MemoryThatGrowsWithEachRunEndsTheProgram) {
  std::vector<std::vector<int>> all;
  all.reserve(100);
  EXPECT_DEATH(run_input([&] { all.emplace_back(1000); }), "bytes that are in use after");
}

TEST(FuzzOracle, MemoryThatIsMadeOnceMayStay) {
  static std::vector<int> cache;
  int runs = 0;
  run_input([&] {
    ++runs;
    cache.resize(1000);
  });
  EXPECT_EQ(runs, 2);
}
#endif

}  // namespace
}  // namespace softhca::fuzz
