// Frames leave in the order in which they were queued, however they were built.

#include "fabric/frame_queue.h"

#include <gtest/gtest.h>

#include <random>

namespace softhca::fabric {
namespace {

void build(wire::Frame& frame, std::uint32_t number) {
  frame.clear();
  std::memcpy(frame.resize_head(sizeof number).data(), &number, sizeof number);
}

std::uint32_t number_of(const wire::Frame& frame) {
  std::uint32_t number = 0;
  EXPECT_EQ(frame.head().size(), sizeof number);
  std::memcpy(&number, frame.head().data(), sizeof number);
  return number;
}

TEST(FrameQueue, KeepsItsOrderWhateverIsBuiltInPlaceAndWhateverIsCopied) {
  for (unsigned seed = 0; seed != 50; ++seed) {
    std::mt19937 random(seed);
    FrameQueue queue(100);
    std::uint32_t pushed = 0;
    std::uint32_t popped = 0;
    for (unsigned i = 0; i != 2000; ++i) {
      switch (random() % 5) {
        case 0: {
          wire::Frame frame;
          build(frame, pushed);
          if (queue.push(frame, 1) != 0) ++pushed;
          break;
        }
        case 1: {
          auto& draft = queue.draft();
          build(draft, pushed);
          if (queue.push_draft(draft, 1)) ++pushed;
          break;
        }
        case 2:
          build(queue.draft(), 0xdead);  // not sent
          break;
        default:
          if (queue.empty()) break;
          ASSERT_EQ(number_of(queue.front().frame), popped++);
          queue.pop();
      }
      ASSERT_EQ(queue.size(), pushed - popped);
      ASSERT_LE(queue.size(), 100u);
    }
  }
}

TEST(FrameQueue, TakesADraftOnlyWhereThereIsRoomAndNoOtherFrameForIt) {
  FrameQueue queue(2);
  wire::Frame other;
  build(other, 7);
  EXPECT_FALSE(queue.push_draft(other, 1));
  for (std::uint32_t i = 0; i != 2; ++i) {
    build(queue.draft(), i);
    EXPECT_TRUE(queue.push_draft(queue.draft(), 1));
  }
  build(queue.draft(), 2);
  EXPECT_FALSE(queue.push_draft(queue.draft(), 1));
  EXPECT_EQ(queue.push(queue.draft(), 1), 0u);
  EXPECT_EQ(number_of(queue.front().frame), 0u);
}

}  // namespace
}  // namespace softhca::fabric
