// The parts of rules that users write as KEY=VALUE,KEY=VALUE,...
#include "util/rule_words.h"

#include <gtest/gtest.h>

#include <array>

namespace softhca::util {
namespace {

std::string error_of(std::string_view text) {
  const auto words = split_rule(text);
  return words ? "accepted" : words.error().message;
}

TEST(RuleWords, ARuleIsSplitAtCommasAndTheFirstEqualsSign) {
  const auto words = split_rule("function=a=b,do=,time=5us");
  ASSERT_TRUE(words) << words.error().message;
  ASSERT_EQ(words->size(), 3u);
  EXPECT_EQ((*words)[0].key, "function");
  EXPECT_EQ((*words)[0].value, "a=b");
  EXPECT_EQ((*words)[1].key, "do");
  EXPECT_EQ((*words)[1].value, "");
  EXPECT_EQ((*words)[2].value, "5us");
}

TEST(RuleWords, AnEmptyRuleHasNoWords) { EXPECT_EQ(split_rule("")->size(), 0u); }

TEST(RuleWords, AWordWithoutAValueIsRefused) {
  EXPECT_EQ(error_of("do=fail,now"), "'now': want key=value");
  EXPECT_EQ(error_of("a=1,,b=2"), "'': want key=value");
}

TEST(RuleWords, AKeyThatIsGivenTwiceIsRefused) {
  EXPECT_EQ(error_of("qp=1,do=stall,qp=2"), "qp= is given twice");
}

TEST(RuleWords, AWrongKeyIsNamedWithTheNearestOne) {
  constexpr std::array<std::string_view, 3> kKeys{"function", "context", "do"};
  EXPECT_EQ(unknown_key("contxt", kKeys).message, "unknown key 'contxt' (context?)");
  EXPECT_EQ(unknown_key("color", kKeys).message, "unknown key 'color'");
}

TEST(RuleWords, AWrongNameIsNamedWithTheNearestOne) {
  constexpr std::array<std::string_view, 2> kActions{"stall", "delay"};
  EXPECT_EQ(unknown_name({.key = "do", .value = "stal"}, "action", kActions).message,
            "do=stal: no such action (stall?)");
  EXPECT_EQ(unknown_name({.key = "do", .value = "explode"}, "action", kActions).message,
            "do=explode: no such action");
}

TEST(RuleWords, NumbersAreDecimalOrHexadecimal) {
  EXPECT_EQ(parse_number<std::uint32_t>("65"), 65u);
  EXPECT_EQ(parse_number<std::uint32_t>("0x41"), 65u);
  EXPECT_EQ(parse_number<std::uint32_t>("41", 16), 65u);
  EXPECT_EQ(parse_number<std::uint16_t>("65536"), std::nullopt);
  for (const auto* text : {"", "0x", "-1", "+1", " 1", "1 ", "1.5", "4g"}) {
    EXPECT_EQ(parse_number<std::uint32_t>(text), std::nullopt) << text;
  }
}

TEST(RuleWords, ANumberOutOfItsRangeIsRefusedWithTheRange) {
  EXPECT_EQ(rule_number<std::uint16_t>({.key = "context", .value = "65535"}), 65535);
  EXPECT_EQ(rule_number<std::uint16_t>({.key = "context", .value = "65536"}).error().message,
            "context=65536: want 0 to 65535");
  EXPECT_EQ(rule_number<std::uint32_t>({.key = "qp", .value = "17"}, 1, 16).error().message,
            "qp=17: want 1 to 16");
  EXPECT_EQ(rule_number<std::uint64_t>({.key = "nth", .value = "0"}, 1).error().message,
            "nth=0: want 1 or more");
}

TEST(RuleWords, TimesHaveUnits) {
  EXPECT_EQ(parse_time("50us"), std::chrono::microseconds(50));
  EXPECT_EQ(parse_time("20ms"), std::chrono::milliseconds(20));
  EXPECT_EQ(parse_time("3600s"), std::chrono::hours(1));
  for (const auto* text : {"", "5", "5h", "us", "3601s", "4000000000s", "-1s"}) {
    EXPECT_EQ(parse_time(text), std::nullopt) << text;
  }
  EXPECT_EQ(rule_time({.key = "time", .value = "5"}).error().message,
            "time=5: want e.g. 50us, 20ms or 3s");
}

TEST(RuleWords, ATimeIsPrintedInTheLargestUnitThatFits) {
  EXPECT_EQ(time_text(std::chrono::microseconds(1500)), "1500us");
  EXPECT_EQ(time_text(std::chrono::milliseconds(20)), "20ms");
  EXPECT_EQ(time_text(std::chrono::seconds(2)), "2s");
}

TEST(RuleWords, NthActsOnOneEventAndEveryOnEachNth) {
  const auto acts = [](const RuleTurns& turns) {
    std::string text;
    for (std::uint64_t event = 1; event <= 6; ++event) text += turns.include(event) ? 'x' : '.';
    return text;
  };
  EXPECT_EQ(acts({}), "xxxxxx");
  EXPECT_EQ(acts({.nth = 3, .every = 0}), "..x...");
  EXPECT_EQ(acts({.nth = 0, .every = 2}), ".x.x.x");
}

TEST(RuleWords, TurnsAreReadAndPrinted) {
  RuleTurns turns;
  EXPECT_TRUE(is_turns_key("nth"));
  EXPECT_FALSE(is_turns_key("qp"));
  EXPECT_EQ(turns_text(turns), "");
  ASSERT_TRUE(apply_turns(turns, {.key = "every", .value = "7"}));
  EXPECT_EQ(turns_text(turns), "every=7,");
  EXPECT_EQ(apply_turns(turns, {.key = "nth", .value = "2"}).error().message,
            "nth= and every= exclude each other");
}

}  // namespace
}  // namespace softhca::util
