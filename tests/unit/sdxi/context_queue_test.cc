// Queues of contexts. A reset removes every context, in any order.
#include "sdxi/context_queue.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "sdxi/turn.h"

namespace softhca::sdxi::test {
namespace {

class NoTurns final : public TurnTaker {
 public:
  Turn take_worker_turn(Context&, ThreadState&) override { return Turn::kIdle; }
  const std::uint64_t* write_index_of(const Context&) const override { return nullptr; }
  void hand_back(Context&) override {}
};

class ContextQueueTest : public ::testing::Test {
 protected:
  Context& make() { return *contexts_.emplace_back(std::make_unique<Context>(home_)); }
  /// The positions in contexts_ of the contexts in the queue, which it empties.
  std::vector<std::size_t> drain() {
    std::vector<std::size_t> order;
    while (!queue_.empty()) {
      const auto* const first = &queue_.pop();
      for (std::size_t i = 0; i != contexts_.size(); ++i) {
        if (contexts_[i].get() == first) order.push_back(i);
      }
    }
    return order;
  }
  NoTurns home_;
  std::vector<std::unique_ptr<Context>> contexts_;
  ContextQueue queue_;
};

TEST_F(ContextQueueTest, TheFirstInIsTheFirstOut) {
  for (int i = 0; i != 3; ++i) queue_.push(make());
  queue_.push_first(make());
  EXPECT_EQ(drain(), (std::vector<std::size_t>{3, 0, 1, 2}));
  queue_.push_first(*contexts_[1]);
  queue_.push(*contexts_[2]);
  EXPECT_EQ(drain(), (std::vector<std::size_t>{1, 2}));
}

TEST_F(ContextQueueTest, AContextIsRemovedFromAnyPlace) {
  using Order = std::vector<std::size_t>;
  const Order left[] = {{1, 2, 3, 4}, {0, 2, 3, 4}, {0, 1, 3, 4}, {0, 1, 2, 4}, {0, 1, 2, 3}};
  for (int i = 0; i != 5; ++i) make();
  for (std::size_t removed = 0; removed != 5; ++removed) {
    for (const auto& context : contexts_) queue_.push(*context);
    queue_.remove(*contexts_[removed]);
    EXPECT_FALSE(contexts_[removed]->queued());
    queue_.push(*contexts_[removed]);
    auto expected = left[removed];
    expected.push_back(removed);
    ASSERT_EQ(drain(), expected);
  }
}

TEST_F(ContextQueueTest, OnlyTheQueueThatHasAContextRemovesIt) {
  ContextQueue other;
  auto& context = make();
  other.push(context);
  queue_.push(make());
  queue_.remove(context);
  EXPECT_TRUE(context.queued());
  queue_.remove(make());
  EXPECT_EQ(&other.pop(), &context);
  EXPECT_FALSE(context.queued());
  EXPECT_EQ(drain(), (std::vector<std::size_t>{1}));
}

TEST_F(ContextQueueTest, ManyContextsAreRemovedFromTheLastToTheFirst) {
  constexpr int kContexts = 65536;
  for (int i = 0; i != kContexts; ++i) queue_.push(make());
  for (auto at = contexts_.rbegin(); at != contexts_.rend(); ++at) {
    ASSERT_FALSE(queue_.empty());
    queue_.remove(**at);
  }
  EXPECT_TRUE(queue_.empty());
}

}  // namespace
}  // namespace softhca::sdxi::test
