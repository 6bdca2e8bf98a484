// How the server merges the answers of its processes into one.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "control/joined_answers.h"

namespace softhca::control {
namespace {

std::string json_of(std::string_view answer) {
  return to_text({.name = "a", .answer = std::string(answer)}, true);
}

std::string text_of(std::string_view answer) {
  return to_text({.name = "a", .what = "f", .answer = std::string(answer), .depth = 1}, false);
}

TEST(Answers, AnObjectIsAMember) {
  EXPECT_EQ(json_of("ok\n{\"x\": \"}\\\"{\", \"y\": [1]}\n"),
            "\"a\": {\"x\": \"}\\\"{\", \"y\": [1]}\n");
}

TEST(Answers, AnAnswerThatIsNoClosedObjectIsAnError) {
  for (const auto* text :
       {"", "\n", "[]", "{", "{\"", "{}}", "{},\"b\":{}", "{\"\\", "{}\"x\"", "x{}"}) {
    const auto answer = std::string(kOk) + text;
    EXPECT_EQ(json_of(answer), "\"a\": {\"error\": \"error: this is not JSON\"}\n") << text;
  }
}

TEST(Answers, AnObjectHasValidTokens) {
  const auto is_object = [](std::string_view text) {
    JsonObject object;
    const bool good = object.add(text) && object.complete();
    EXPECT_EQ(good, nlohmann::json::accept(text)) << text;
    return good;
  };
  for (const auto* good :
       {R"({"a": [0, -1, 10, 1.5, 2e3, -0.1E-10, true, false, null, "", {}, [], [[]]]})", "{ } \n",
        R"({"\u00eF\n": "\"\\\/"})", "{\"\xc3\xa4\": \"\xf0\x9f\x98\x80\"}"}) {
    EXPECT_TRUE(is_object(good)) << good;
  }
  for (const auto* bad : {"{\"n\": nonsense}",
                          "{\"a\": 01}",
                          "{\"a\": 1.}",
                          "{\"a\": -}",
                          "{\"a\": 1e}",
                          "{\"a\": .1}",
                          "{\"a\" 1}",
                          "{\"a\": 1,}",
                          "{\"a\": [1 2]}",
                          "{\"a\": [1}}",
                          "{\"a\": [1,]}",
                          "{a: 1}",
                          "{\"a\": tru}",
                          "{\"a\": \"\x1b\"}",
                          "{\"a\": \x1b}",
                          "{\"a\": \"\\x\"}",
                          "{\"a\": \"\\u12g4\"}",
                          "{\"a\": \"\x9b\"}",
                          "{\"a\": \"\xc0\x80\"}",
                          "{\"a\": \"\xed\xa0\x80\"}",
                          "{\"a\": \"\xc3\"}",
                          "{\"a\"}",
                          "{,}",
                          "{} {}",
                          "{\"a\": 1"}) {
    EXPECT_FALSE(is_object(bad)) << bad;
  }
  const auto nested = [](unsigned depth) {
    return R"({"a":)" + std::string(depth - 1, '[') + std::string(depth - 1, ']') + "}";
  };
  EXPECT_TRUE(is_object(nested(JsonObject::kDepthMax)));
  EXPECT_FALSE(JsonObject().add(nested(JsonObject::kDepthMax + 1)));
}

TEST(Answers, OneAloneIsHarmlessToo) {
  EXPECT_EQ(harmless("ok\n\x1b[2J a\x7f\nb\n", false), "ok\n?[2J a?\nb\n");
  EXPECT_EQ(harmless("error: \x1b[2J\n", true), "error: ?[2J\n");
  EXPECT_EQ(harmless("ok\n{\"a\": 1}\n", true), "ok\n{\"a\": 1}\n");
  EXPECT_EQ(harmless("ok\n{\"a\": \x1b}\n", true), "error: this is not JSON\n");
}

TEST(Answers, ANameIsWithoutControlCharacters) {
  EXPECT_EQ(to_text({.name = "a\x1b[31m", .what = "f", .answer = "ok\n", .depth = 1}, false),
            "  a?[31m:\n");
}

TEST(Answers, AnErrorIsReportedAsOneAndIsALineOrSo) {
  EXPECT_EQ(json_of("error: \"no\"\n"), "\"a\": {\"error\": \"error: \\\"no\\\"\\n\"}\n");
  EXPECT_LT(json_of("error: " + std::string(1 << 20, '\1')).size(), 32u << 10);
  EXPECT_EQ(text_of("error: no\n"), "  a:\n    error: no\n");
}

TEST(Answers, LinesOfATextAreDeeperThanItsName) {
  EXPECT_EQ(text_of("ok\nf:\n  x: 1\n"), "  a:\n    x: 1\n");
  EXPECT_EQ(text_of("ok\nb:\n   x\tz: 1\n\ny"), "  a:\n    b:\n     x?z: 1\n    \n    y\n");
  EXPECT_EQ(text_of("ok\n"), "  a:\n");
}

TEST(Answers, HoweverTheyAreCutTheyAreTheSame) {
  const std::string json = "ok\n{\"x\": \"\\\\\", \"y\": {\"z\": [\"\\\"\"]}}\n\n";
  const std::string text = "ok\nf:\n  x: 1\ny: 2\n\n z";
  for (const std::int64_t units : {1, 7, 20, 100}) {
    for (const bool is_json : {true, false}) {
      const AnswerPart part{
          .text = ",", .name = "a", .what = "f", .answer = is_json ? json : text, .depth = 2};
      AnswerWriter writer(part, is_json);
      std::string out;
      util::WorkBudget work(units);
      unsigned turns = 1;
      for (; !writer.go_on(out, work); ++turns) work.grant(units);
      EXPECT_EQ(out, to_text(part, is_json));
      if (units == 1) {
        EXPECT_GT(turns, text.size());
      }
    }
  }
}

TEST(JoinedAnswers, TheAnswersOfHundredsOfObjectsAreJoinedInShortTurns) {
  const auto loop = os::EventLoop::create().value();
  JoinedAnswers answers(*loop);
  nlohmann::json object;
  for (int i = 0; i != 20'000; ++i) object["object " + std::to_string(i)] = i;
  const auto answer = std::string(kOk) + object.dump(1) + "\n";
  std::string all;
  answers.join(
      {{.text = "{"},
       {.name = "a", .what = "a", .answer = answer},
       {.text = ",", .name = "b", .what = "b", .answer = answer},
       {.text = "}"}},
      true,
      {.send = [&](std::string text) { all = std::move(text); }, .is_wanted = [] { return true; }});
  std::int64_t longest = 0;
  for (int turns = 0; all.empty() && turns != 10'000; ++turns) {
    loop->run_once(util::Time::min());
    longest = std::max(longest, loop->budget().done());
  }
  EXPECT_LT(longest, 50'000);
  ASSERT_TRUE(all.starts_with(kOk));
  const auto joined = nlohmann::json::parse(all.substr(kOk.size()));
  EXPECT_EQ(joined["a"], object);
  EXPECT_EQ(joined["b"], object);
}

}  // namespace
}  // namespace softhca::control
