// The queue pairs that must fail: once each, some in a call, none that is gone.
#include "hca/failing_list.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace softhca::hca {
namespace {

struct FailingQueue {
  std::uint32_t qpn() const { return number; }
  std::uint32_t number = 0;
  Failure failure = Failure::kNone;
};

class FailingQueues : public testing::Test {
 protected:
  using List = FailingList<std::uint32_t, char>;

  FailingQueue& make(std::uint32_t number) {
    return queues[number] = FailingQueue{.number = number, .failure = Failure::kNone};
  }
  void fail_some() {
    list.fail_some(
        work,
        [this](std::uint32_t number) {
          const auto found = queues.find(number);
          return found == queues.end() ? nullptr : &found->second;
        },
        [this](FailingQueue&, char reason) { reasons.push_back(reason); });
  }

  List list;
  std::map<std::uint32_t, FailingQueue> queues;
  std::vector<char> reasons;
  util::WorkBudget work{INT64_MAX};
};

TEST_F(FailingQueues, FailOnceByTheirFirstReason) {
  auto& queue = make(7);
  EXPECT_TRUE(list.add(queue, 'a'));
  EXPECT_FALSE(list.add(queue, 'b'));
  fail_some();
  EXPECT_FALSE(list.add(queue, 'c'));
  EXPECT_TRUE(list.empty());
  fail_some();
  EXPECT_EQ(reasons, std::vector{'a'});
}

TEST_F(FailingQueues, DoNotFailAfterTheirEnd) {
  list.add(make(7), 'a');
  queues.erase(7);
  fail_some();
  EXPECT_TRUE(list.empty());
  EXPECT_TRUE(reasons.empty());
}

TEST_F(FailingQueues, FailOnceWhenANumberIsUsedAgain) {
  list.add(make(7), 'a');
  list.add(make(7), 'b');
  fail_some();
  EXPECT_EQ(reasons, std::vector{'b'});
}

TEST_F(FailingQueues, DoNotFailForTheOneBefore) {
  list.add(make(7), 'a');
  make(7);
  fail_some();
  EXPECT_TRUE(reasons.empty());
}

TEST_F(FailingQueues, FailSomeInACallAndAreCharged) {
  constexpr auto kQueues = static_cast<std::uint32_t>(List::kFailedAtOnce) + 1;
  for (std::uint32_t number = 0; number != kQueues; ++number) list.add(make(number), 'a');
  fail_some();
  EXPECT_EQ(reasons.size(), List::kFailedAtOnce);
  EXPECT_EQ(work.done(), static_cast<std::int64_t>(List::kFailedAtOnce) * List::kFailWork);
  EXPECT_FALSE(list.empty());
  fail_some();
  EXPECT_EQ(reasons.size(), kQueues);
  EXPECT_TRUE(list.empty());
}

TEST_F(FailingQueues, FailWhileThereIsWorkLeft) {
  for (std::uint32_t number = 0; number != 100; ++number) list.add(make(number), 'a');
  work = util::WorkBudget(20 * List::kFailWork);
  fail_some();
  EXPECT_EQ(reasons.size(), 20u);
  EXPECT_TRUE(work.spent());
  fail_some();
  EXPECT_EQ(reasons.size(), 20 + List::kAtLeast) << "without work left, too";
}

}  // namespace
}  // namespace softhca::hca
