// Which skips the list of main() allows.
#include "main/skip_list.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>

namespace softhca::test {
namespace {

SkipList list_of(const std::string& text) {
  std::istringstream lines(text);
  return SkipList(lines);
}

TEST(SkipList, AllowsATestWithTheListedMessage) {
  const auto list = list_of("# a comment | no | never\nTap.* | not root | no namespaces\n");
  EXPECT_TRUE(list.allows("Tap.Carries", "not root"));
  EXPECT_TRUE(list.allows("Tap.Carries", " not root\n"));
}

TEST(SkipList, RefusesAnotherTest) {
  EXPECT_FALSE(list_of("Tap.* | not root | x").allows("Taps.Carries", "not root"));
}

TEST(SkipList, RefusesAListedTestThatGivesAnotherMessage) {
  const auto list = list_of("Tap.* | not root | x\nHub.Joins | too old | y\n");
  EXPECT_FALSE(list.allows("Tap.Carries", "too old"));
  EXPECT_FALSE(list.allows("Tap.Carries", "not root today"));
}

TEST(SkipList, RefusesASkipWithoutAMessage) {
  EXPECT_FALSE(list_of("Tap.* | | x").allows("Tap.Carries", ""));
}

TEST(SkipList, ALineOfAnotherFormAllowsNothing) {
  EXPECT_FALSE(list_of("Tap.*  not root\nTap.* | not root\n").allows("Tap.Carries", "not root"));
}

TEST(SkipList, TheListOfTheTreeHasItsForm) {
  std::ifstream file(SOFTHCA_SKIPS);
  int lines = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('#')) continue;
    ++lines;
    EXPECT_EQ(std::ranges::count(line, '|'), 2) << line;
  }
  EXPECT_GT(lines, 10);
}

}  // namespace
}  // namespace softhca::test
