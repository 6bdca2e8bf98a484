// The blocks of numbers that processes get.
#include "hub/roce_blocks.h"

#include <gtest/gtest.h>

namespace softhca::hub {
namespace {

using namespace std::chrono_literals;

TEST(RoceBlocksTest, TheLowestUnusedBlockIsTakenFirst) {
  RoceBlocks blocks;
  EXPECT_EQ(blocks.take(util::Time{}), 1);
  EXPECT_EQ(blocks.take(util::Time{}), 2);
}

TEST(RoceBlocksTest, ABlockThatNoProcessGotNeedNotRest) {
  RoceBlocks blocks;
  const util::Time now{std::chrono::hours(1)};
  EXPECT_EQ(blocks.take(now), 1);
  EXPECT_EQ(blocks.take(now), 2);
  blocks.give_back(1, now);
  blocks.give_back_unused(2);
  EXPECT_EQ(blocks.take(now), 2);
  EXPECT_EQ(blocks.take(now), 3);
}

TEST(RoceBlocksTest, ABlockRestsBeforeItIsGivenOutAgain) {
  RoceBlocks blocks;
  const util::Time start{1h};
  EXPECT_EQ(blocks.take(start), 1);
  EXPECT_EQ(blocks.take(start), 2);
  blocks.give_back(2, start);
  blocks.give_back(1, start + 1s);
  EXPECT_EQ(blocks.take(start + RoceBlocks::kRest - 1ns), 3);
  EXPECT_EQ(blocks.take(start + RoceBlocks::kRest), 2);
  EXPECT_EQ(blocks.take(start + RoceBlocks::kRest), 4) << "1 still rests";
  EXPECT_EQ(blocks.take(start + RoceBlocks::kRest + 1s), 1);
}

TEST(RoceBlocksTest, AllBlocksCanBeInUse) {
  RoceBlocks blocks;
  const util::Time start{1h};
  for (unsigned block = 1; block != 256; ++block) EXPECT_EQ(blocks.take(start), block);
  EXPECT_EQ(blocks.take(start), std::nullopt);
  blocks.give_back(7, start);
  EXPECT_EQ(blocks.take(start), std::nullopt);
  EXPECT_EQ(blocks.take(start + RoceBlocks::kRest), 7);
  EXPECT_EQ(blocks.take(start + 1h), std::nullopt);
}

}  // namespace
}  // namespace softhca::hub
