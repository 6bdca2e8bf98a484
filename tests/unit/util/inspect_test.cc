#include "util/inspect.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace softhca::util {
namespace {

InspectNode example() {
  InspectNode root("dev0");
  root.add("count", 7u);
  root.add_hex("address", 0x1000);
  root.add("up", true);
  root.add("state", "RUN");
  auto& list = root.list("contexts");
  list.child("context 0").add("number", 0u);
  list.child("context 9").add("number", 9u);
  root.child("nothing");
  return root;
}

TEST(InspectTest, TextHasALineForEachValueIndentedByLevel) {
  EXPECT_EQ(example().to_text(),
            "dev0:\n"
            "  count: 7\n"
            "  address: 0x1000\n"
            "  up: yes\n"
            "  state: RUN\n"
            "  contexts:\n"
            "    context 0:\n"
            "      number: 0\n"
            "    context 9:\n"
            "      number: 9\n"
            "  nothing: -\n");
}

TEST(InspectTest, JsonKeepsTheOrderAndMakesArraysOfLists) {
  const auto text = example().to_json();
  const auto json = nlohmann::ordered_json::parse(text);
  EXPECT_EQ(json.dump(), R"({"count":7,"address":"0x1000","up":true,"state":"RUN",)"
                         R"("contexts":[{"number":0},{"number":9}],"nothing":{}})");
  EXPECT_EQ(text.back(), '\n');
}

TEST(InspectTest, LargeNumbersSurvive) {
  InspectNode root("n");
  root.add("large", ~std::uint64_t{0});
  EXPECT_EQ(nlohmann::json::parse(root.to_json())["large"].get<std::uint64_t>(), ~std::uint64_t{0});
}

TEST(InspectTest, ANameThatIsNotUtf8DoesNotBreakJson) {
  InspectNode root("n");
  root.add("name",
           "a\xff"
           "b");
  EXPECT_TRUE(nlohmann::json::accept(root.to_json()));
}

TEST(InspectTest, ChildrenStayWhereTheyAreWhileOthersAreAdded) {
  InspectNode root("n");
  auto& first = root.child("first");
  for (int i = 0; i < 1000; ++i) root.child("more");
  first.add("late", 1u);
  EXPECT_EQ(root.to_text().substr(0, 23), "n:\n  first:\n    late: 1");
}

}  // namespace
}  // namespace softhca::util
