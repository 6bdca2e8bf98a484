// Inspect trees that are built in pieces.
#include "util/inspection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "util/inspected.h"

namespace softhca::util {
namespace {

using test::inspect_in_turns;
using test::inspected;
using ::testing::HasSubstr;
using ::testing::Not;

/// A sparse array of objects, with parts before and after it.
struct Device {
  std::string name() const { return "dev"; }
  void inspect(Inspection& out) const {
    ++calls;
    out.values([](InspectNode& node) { node.add("first", 1u); });
    out.group("inner", [&] {
      out.tally("classes", classified, [&](std::uint64_t place) {
        return place % step != 0 ? std::string_view() : place % 2 == 0 ? "even" : "odd";
      });
      InspectList list{.name = "objects", .end = places, .count = count};
      list.there = there;
      list.begin = begin;
      out.list(
          list,
          [&](std::uint64_t place) {
            ++looks;
            if (place == hidden) out.unreadable(place, "hidden");
            return place % step == 0 && place != hidden ? std::optional(place) : std::nullopt;
          },
          [&](std::uint64_t place, InspectNode& node) {
            ++shown;
            node.child("object").add("number", place);
          });
    });
    out.part("last", [](InspectNode& node) { node.add("good", true); });
  }
  std::uint64_t places = 1000, step = 7, hidden = ~0u;
  std::optional<std::uint64_t> count = 143;
  bool there = true;
  std::uint64_t begin = 0;
  std::uint64_t classified = 1000;
  mutable unsigned calls = 0, looks = 0, shown = 0;
};

nlohmann::json parsed(const Device& device, Inspection::Options options = {}) {
  options.json = true;
  return nlohmann::json::parse(inspected(device, options));
}

TEST(Inspection, ManyTurnsMakeTheSameAnswerAsOne) {
  for (const bool json : {false, true}) {
    const Device device;
    const Inspection::Options options{.json = json, .count = 100};
    const auto all = inspect_in_turns(device, options, 1 << 30);
    const auto pieces = inspect_in_turns(device, options, 2000);
    EXPECT_EQ(all.turns, 1u);
    EXPECT_GE(pieces.turns, 50u);
    EXPECT_LE(pieces.longest, 4000) << "one object at most beyond what was allowed";
    EXPECT_EQ(all.text, pieces.text);
    EXPECT_EQ(device.shown, 200u) << "each of them once in each answer";
  }
}

// Numbers of a table may begin high.
TEST(Inspection, PositionsBeforeTheFirstAreNotSearched) {
  Device device;
  device.places = 70'000'070;
  device.begin = 70'000'000;
  device.count = 10;
  const auto tree = parsed(device);
  EXPECT_EQ(tree["inner"]["objects"].size(), 10u);
  EXPECT_EQ(tree["inner"]["objects_count"], 10);
  EXPECT_LE(device.looks, 70u);
  device.looks = 0;
  device.count.reset();
  EXPECT_EQ(parsed(device)["inner"]["objects_count"], 10);
  EXPECT_LE(device.looks, 70u);
  EXPECT_EQ(parsed(device, {.from = 70'000'050})["inner"]["objects"].size(), 2u);
}

TEST(Inspection, AnAnswerShowsSixteenOfEachKindAndSaysHowToSeeMore) {
  const auto tree = parsed({});
  EXPECT_EQ(tree["first"], 1);
  EXPECT_EQ(tree["inner"]["classes"]["even"], 72);
  EXPECT_EQ(tree["inner"]["objects"].size(), 16u);
  EXPECT_EQ(tree["inner"]["objects_count"], 143);
  EXPECT_EQ(tree["inner"]["objects_shown"], "16 of 143, --from 0x70 for more");
  EXPECT_EQ(tree["last"]["good"], true);
  const auto next = parsed({}, {.from = 0x70, .count = 3});
  ASSERT_EQ(next["inner"]["objects"].size(), 3u);
  EXPECT_EQ(next["inner"]["objects"][0]["number"], 0x70);
  EXPECT_EQ(next["inner"]["objects_shown"], "3 of 143, --from 0x85 for more");
}

TEST(Inspection, ObjectsOutsideThePageAreNotInspected) {
  const Device device{.places = 1u << 20};
  const auto text = inspected(device, {.from = 1u << 19, .count = 2});
  EXPECT_THAT(text, HasSubstr("2 of 143, --from "));
  EXPECT_LT(device.looks, 30u);
}

TEST(Inspection, ObjectsWithoutACountAreCounted) {
  const auto tree = parsed({.count = std::nullopt}, {.from = 990});
  EXPECT_EQ(tree["inner"]["objects"].size(), 1u);
  EXPECT_EQ(tree["inner"]["objects_count"], 143);
  EXPECT_EQ(tree["inner"]["objects_shown"], "1 of 143");
}

TEST(Inspection, AnAnswerThatIsTooLongIsCutAndSaysSo) {
  const Inspection::Options options{.json = true, .count = 256, .bytes = 2000};
  const auto text = inspected(Device(), options);
  ASSERT_LT(text.size(), options.bytes + 500);
  const auto tree = nlohmann::json::parse(text);
  EXPECT_GT(tree["inner"]["objects"].size(), 10u);
  EXPECT_FALSE(tree.contains("last"));
  EXPECT_THAT(tree["answer_cut"].get<std::string>(), HasSubstr("does not fit into 2000 bytes"));
  EXPECT_THAT(inspected(Device(), {.count = 256, .bytes = 2000}), HasSubstr("\n  answer_cut: "));
  EXPECT_THAT(inspected(Device()), Not(HasSubstr("answer_cut")));
}

TEST(Inspection, AnAnswerMayEndAnywhereForAnotherReason) {
  for (std::int64_t allowed = 1; allowed < 40'000; allowed += 500) {
    const Device device;
    Inspection inspection("dev", {.json = true});
    WorkBudget work(allowed);
    (void)inspection.go_on(work, [&](Inspection& out) { device.inspect(out); });
    inspection.cut("out of time");
    const auto text = inspection.finish();
    ASSERT_TRUE(nlohmann::json::accept(text)) << text;
    EXPECT_EQ(nlohmann::json::parse(text)["answer_cut"], "out of time");
  }
}

TEST(Inspection, AListThatGoesMeanwhileEndsAndHarmsNothing) {
  Device device;
  Inspection inspection("dev", {.json = true, .count = 256});
  bool done = false;
  while (!done) {
    WorkBudget work(5000);
    done = inspection.go_on(work, [&](Inspection& out) { device.inspect(out); });
    if (device.shown == 20) {
      device.there = false;
      device.places = 0;
    }
  }
  const auto tree = nlohmann::json::parse(inspection.finish());
  EXPECT_GE(tree["inner"]["objects"].size(), 20u);
  EXPECT_LT(tree["inner"]["objects"].size(), 30u);
  EXPECT_EQ(tree["last"]["good"], true);
}

TEST(Inspection, UnreadableObjectsAreNamed) {
  const auto tree = parsed({.hidden = 14, .count = std::nullopt});
  EXPECT_EQ(tree["inner"]["objects_unreadable"], "from 0xe on: hidden");
  EXPECT_EQ(tree["inner"]["objects_count"], 142);
}

}  // namespace
}  // namespace softhca::util
