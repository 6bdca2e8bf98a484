#include "hca/use.h"

#include <gtest/gtest.h>

#include <utility>

#include "hca/number_pool.h"
#include "hca/object_table.h"
#include "hca/refusal.h"
#include "util/strong.h"

namespace softhca::hca {
namespace {

using Number = util::Strong<struct NumberTag, std::uint32_t>;
using Other = util::Strong<struct OtherTag, std::uint32_t>;

TEST(Use, AnObjectIsUsedAsLongAsAUserKeepsItsUse) {
  Users users;
  EXPECT_FALSE(users.any());
  {
    const Use first(users);
    EXPECT_TRUE(users.any());
    const Use second(users);
    EXPECT_EQ(users.count(), 2u);
  }
  EXPECT_FALSE(users.any());
}

TEST(Use, AUseThatMovesIsStillOne) {
  Users users;
  Use first(users);
  const Use moved(std::move(first));
  EXPECT_EQ(users.count(), 1u);
}

TEST(Use, TakingAnotherUseEndsTheOneBefore) {
  Users a;
  Users b;
  Use use(a);
  use = Use(b);
  EXPECT_FALSE(a.any());
  EXPECT_TRUE(b.any());
  use = Use();
  EXPECT_FALSE(b.any());
}

TEST(UseDeathTest, AnObjectThatGoesBeforeItsUsersIsABug) {
  EXPECT_DEATH(
      {
        Use use;
        Users users;
        use = Use(users);
      },
      "goes before those that use it");
}

TEST(NumberPool, NumbersComeFromTheirRange) {
  NumberPool<Number> pool(5, 2);
  EXPECT_EQ(pool.allocate(), Number(5));
  EXPECT_EQ(pool.allocate(), Number(6));
  EXPECT_EQ(pool.allocate(), std::nullopt);
  EXPECT_EQ(pool.count(), 2u);
  EXPECT_FALSE(pool.contains(Number(4)));
  EXPECT_FALSE(pool.contains(Number(7)));
}

TEST(NumberPool, AFreedNumberIsNoLongerContained) {
  NumberPool<Number> pool(1, 4);
  const auto number = *pool.allocate();
  pool.free(number);
  EXPECT_FALSE(pool.contains(number));
  EXPECT_EQ(pool.count(), 0u);
}

TEST(NumberPool, UsesSurviveTheGrowthOfThePool) {
  NumberPool<Number> pool(0, 1000);
  const auto first = *pool.allocate();
  {
    const auto use = pool.use(first);
    for (int i = 1; i < 1000; ++i) (void)pool.allocate();
    EXPECT_TRUE(pool.is_used(first));
  }
  EXPECT_FALSE(pool.is_used(first));
}

struct Thing {
  Thing(Number the_number, int the_value) : number(the_number), value(the_value) {}
  Number number;
  int value;
};
struct OtherThing {
  explicit OtherThing(Other the_number) : number(the_number) {}
  Other number;
};

TEST(ObjectTable, ObjectsAreFoundByTheirNumber) {
  ObjectTable<Thing, Number> table(3, 2);
  auto* a = table.emplace(10);
  auto* b = table.emplace(11);
  EXPECT_EQ(a->number, Number(3));
  EXPECT_EQ(table.find(Number(4)), b);
  EXPECT_EQ(table.find(Number(0)), nullptr);
  EXPECT_EQ(table.find(Number(~0u)), nullptr);
  EXPECT_EQ(table.emplace(12), nullptr);
  table.erase(Number(3));
  EXPECT_EQ(table.find(Number(3)), nullptr);
  EXPECT_EQ(table.count(), 1u);
}

TEST(ObjectTable, TablesThatShareNumbersNeverHaveTheSame) {
  util::IdAllocator numbers(0x40, 8);
  ObjectTable<Thing, Number> things(numbers, 3);
  ObjectTable<OtherThing, Other> others(numbers, 100);
  for (std::uint32_t i = 0; i < 3; ++i) {
    const auto number = things.emplace(0)->number.value();
    EXPECT_EQ(others.find(Other(number)), nullptr);
    EXPECT_NE(others.emplace()->number.value(), number);
  }
  EXPECT_EQ(things.emplace(0), nullptr) << "at most 3, although numbers are left";
  EXPECT_NE(others.emplace(), nullptr);
  EXPECT_NE(others.emplace(), nullptr);
  EXPECT_EQ(others.emplace(), nullptr) << "no numbers are left";
}

TEST(ObjectTable, HighNumbersTakeNoMoreRoomThanLowOnes) {
  constexpr std::uint32_t kFirst = 0xFF'0000;
  util::IdAllocator numbers(kFirst, 8);
  ObjectTable<Thing, Number> things(numbers, 8, kFirst);
  EXPECT_EQ(things.first(), kFirst);
  EXPECT_EQ(things.end(), kFirst);
  auto* const one = things.emplace(1);
  EXPECT_EQ(one->number, Number(kFirst));
  EXPECT_EQ(things.end(), kFirst + 1);
  EXPECT_EQ(things.find(Number(kFirst)), one);
  EXPECT_EQ(things.find(Number(kFirst + 1)), nullptr);
  EXPECT_EQ(things.find(Number(kFirst - 1)), nullptr);
  EXPECT_EQ(things.find(Number(0)), nullptr);
  things.erase(Number(kFirst));
  EXPECT_EQ(things.find(Number(kFirst)), nullptr);
}

TEST(ObjectTable, VisitsInTheOrderOfNumbers) {
  ObjectTable<Thing, Number> table(0, 10);
  for (int i = 0; i < 4; ++i) table.emplace(i);
  table.erase(Number(1));
  std::string seen;
  std::as_const(table).for_each([&](const Thing& thing) { seen += std::to_string(thing.value); });
  EXPECT_EQ(seen, "023");
}

enum class Status { kOk, kBad };

TEST(Refusal, TheSameCheckHasTheSameNumberForEver) {
  const auto refusal = refuse(Status::kBad, "PRM 12.8.1", "unknown PD").value();
  EXPECT_EQ(refusal.status, Status::kBad);
  EXPECT_EQ(refusal.syndrome, syndrome_of("PRM 12.8.1", "unknown PD"));
  EXPECT_NE(refusal.syndrome, syndrome_of("PRM 12.8.2", "unknown PD"));
  EXPECT_NE(syndrome_of("", ""), 0u);
  // Drivers' logs print this number, so it must not change.
  EXPECT_EQ(syndrome_of("PRM Table 127", "unknown opcode"), 0xf5dfe5dfu);
}

}  // namespace
}  // namespace softhca::hca
