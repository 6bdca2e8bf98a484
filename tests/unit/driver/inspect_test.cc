// The output of `softhca inspect` for a ConnectX.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "driver/world.h"
#include "util/inspected.h"

namespace softhca::driver::test {
namespace {

nlohmann::json look(const Node& node) {
  return nlohmann::json::parse(softhca::test::inspected(*node.device, {.json = true}));
}

TEST(ConnectxInspectTest, ACardWithoutADriverHasNoQueues) {
  World world;
  const auto tree = look(world.a());
  EXPECT_EQ(tree["pci"]["vendor_id"], "0x15b3");
  for (const auto* kind : {"event_queues", "completion_queues", "queue_pairs"}) {
    EXPECT_EQ(tree.at(kind), nlohmann::json::array()) << kind;
  }
}

TEST(ConnectxInspectTest, QueuePairsAreCountedByState) {
  World world;
  world.open();
  Endpoint a(world.a()), b(world.b()), idle(world.a());
  connect(a, b);
  const auto tree = look(world.a());
  EXPECT_FALSE(tree["event_queues"].empty());
  EXPECT_EQ(tree["completion_queues"].size(), 4u);
  EXPECT_EQ(tree["queue_pairs_by_state"]["RTS"], 1);
  EXPECT_EQ(tree["queue_pairs_by_state"]["RESET"], 1);
  ASSERT_EQ(tree["queue_pairs"].size(), 2u);
  EXPECT_EQ(tree["queue_pairs"][0]["type"], "RC");
  EXPECT_EQ(tree["port"]["oper_status"], "UP");
}

}  // namespace
}  // namespace softhca::driver::test
