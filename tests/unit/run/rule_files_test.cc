// Fault rules in files.
#include "run/rule_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "vfio_user/served_function.h"

namespace softhca::run {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(RuleFiles, CommentsAndBlankLinesDoNotCount) {
  EXPECT_THAT(rules_in("# all\n\nport=*,do=lose\r\n  port=a,do=pause,time=1s \t# late\n#\nx"),
              ElementsAre("port=*,do=lose", "port=a,do=pause,time=1s", "x"));
  EXPECT_THAT(rules_in(""), IsEmpty());
  EXPECT_THAT(rules_in("#x"), IsEmpty());
}

TEST(RuleFiles, AFileStandsForItsRules) {
  const test::TemporaryDirectory directory;
  const auto path = directory / "rules";
  std::ofstream(path) << "b\nc\n";
  EXPECT_THAT(read_rules({"a", "@" + std::string(path), "d"}).value(),
              ElementsAre("a", "b", "c", "d"));
  EXPECT_FALSE(read_rules({"@" + std::string(path) + "x"}));
}

TEST(RuleFiles, AFileThatCannotBeReadIsAnError) {
  const test::TemporaryDirectory directory;
  const std::string path = directory / "";
  EXPECT_EQ(read_rules({"@" + path}).error().message, "--fault @" + path + ": Is a directory");
}

TEST(RuleFiles, AFileWithoutEndIsAnError) {
  EXPECT_THAT(read_rules({"@/dev/zero"}).error().message, HasSubstr("more than 1048576 bytes"));
}

}  // namespace
}  // namespace softhca::run
