#include "hub/numbers.h"

#include <gtest/gtest.h>

#include <set>

namespace softhca::hub {
namespace {

constexpr unsigned kMost = 0xfffe;

/// The numbers that the hubs of a machine have claimed.
class Machine {
 public:
  Numbers::Claim claim() {
    return [this](unsigned block) {
      if (!claimed_.insert(block).second) return os::UniqueFd();
      return os::UniqueFd(::dup(STDERR_FILENO));
    };
  }
  void take(unsigned block) { claimed_.insert(block); }
  const std::set<unsigned>& claimed() const { return claimed_; }

 private:
  std::set<unsigned> claimed_;
};

TEST(Numbers, TwoHubsGiveNoNumberTwice) {
  Machine machine;
  Numbers a(kMost, 7, machine.claim()), b(kMost, 7, machine.claim());
  std::set<unsigned> given;
  for (int i = 0; i < 1000; ++i) {
    for (auto* hub : {&a, &b}) {
      const auto number = hub->next([](unsigned) { return false; });
      EXPECT_TRUE(given.insert(number).second) << number;
      EXPECT_NE(number % 256, 0u);
      EXPECT_NE(number % 256, 255u);
    }
  }
}

TEST(Numbers, ANumberIsGivenAgainAfterAllOthers) {
  Machine machine;
  Numbers numbers(kMost, 200, machine.claim());
  std::set<unsigned> given;
  const auto first = numbers.next([](unsigned) { return false; });
  given.insert(first);
  for (;;) {
    const auto number = numbers.next([](unsigned) { return false; });
    if (number == first) break;
    ASSERT_TRUE(given.insert(number).second) << number;
  }
  EXPECT_EQ(given.size(), 256u * 254);
}

TEST(Numbers, ATakenNumberIsSkipped) {
  Numbers numbers(kMost, 3);
  EXPECT_EQ(numbers.next([](unsigned number) { return number < 3 * 256 + 5; }), 3u * 256 + 5);
  EXPECT_EQ(numbers.next([](unsigned) { return true; }), 0u);
}

TEST(Numbers, BlocksAreSharedWhenOtherHubsHaveAll) {
  Machine machine;
  for (unsigned block = 0; block != 256; ++block) machine.take(block);
  Numbers numbers(kMost, 9, machine.claim());
  EXPECT_EQ(numbers.next([](unsigned) { return false; }), 9u * 256 + 1);
}

TEST(Numbers, BlocksThatAreNotUsedAreGivenBack) {
  unsigned block = 0;
  os::UniqueFd claimed;
  while (block != 256 && !claimed) claimed = claim_on_this_machine(block++);
  ASSERT_TRUE(claimed) << "other hubs have all blocks";
  EXPECT_FALSE(claim_on_this_machine(block - 1)) << "one hub has it";
  int open = 0;
  Numbers numbers(kMost, 1, [&open](unsigned) {
    ++open;
    return os::UniqueFd(::dup(STDERR_FILENO));
  });
  std::set<int> blocks;
  for (int i = 0; i < 600; ++i) {
    const auto number = numbers.next([](unsigned) { return false; });
    const auto block = static_cast<int>(number / 256);
    // One process of the first block is alive.
    numbers.give_back([](unsigned first, unsigned last) { return first <= 300 && 300 <= last; });
    blocks.insert(block);
  }
  EXPECT_EQ(blocks.size(), 3u);
  EXPECT_EQ(open, 3) << "each was claimed once";
}

}  // namespace
}  // namespace softhca::hub
