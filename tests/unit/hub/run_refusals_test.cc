// Command lines and files that `softhca` refuses, and the message it prints.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <fstream>
#include <string>
#include <vector>

#include "run_command.h"

namespace softhca::hub {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST_F(RunCommandTest, AWordThatIsNotUnderstoodIsNamed) {
  const auto says = [this](const std::vector<std::string>& words) {
    EXPECT_EQ(wait(start_softhca(words)), 1);
    return out();
  };
  EXPECT_EQ(says({"rum", "--", "true"}),
            "softhca: there is no command 'rum' (run?); softhca --help lists them\n");
  EXPECT_EQ(says({"elephant"}),
            "softhca: there is no command 'elephant'; softhca --help lists them\n");
  EXPECT_EQ(says({"help"}),
            "softhca: there is no command 'help' (--help?); softhca --help lists them\n");
  EXPECT_EQ(says({"version"}),
            "softhca: there is no command 'version' (--version?); softhca --help lists them\n");
  EXPECT_EQ(says({"-V"}), "softhca: there is no option '-V'; softhca --help lists them\n");
  EXPECT_EQ(says({}), "softhca: which command? softhca --help lists them\n");
  EXPECT_EQ(
      says({"run", "--fabrik", "x", "--", "true"}),
      "softhca: run: there is no option '--fabrik' (--fabric?); softhca run --help lists them\n");
  EXPECT_EQ(says({"sdxi", "cpy", "a", "b"}),
            "softhca: sdxi: there is no command 'cpy' (copy?); softhca sdxi --help lists them\n");
  EXPECT_EQ(says({"rsnic"}), "softhca: rsnic: which command? softhca rsnic --help lists them\n");
  EXPECT_EQ(
      says({"sdxi", "copy", "--sockt", "s", "a", "b"}),
      "softhca: sdxi: copy: there is no option '--sockt' (--socket?); softhca sdxi copy --help "
      "lists them\n");
  EXPECT_EQ(says({"docs", "limits", "x"}), "softhca: docs: 'x' is one word too many\n");
  EXPECT_THAT(says({"run", "--devices", "many", "--", "true"}),
              AllOf(testing::StartsWith("softhca: run: "), HasSubstr("many")));
}

// The statuses are those of shells.
TEST_F(RunCommandTest, AFileThatCannotBeRunIsNamedWithTheReason) {
  const auto path = file("program").string();
  const auto says = [this](const std::string& word) {
    const auto status = run({"--private", "--", word});
    return std::to_string(status) + " " + out();
  };
  const auto says_of = [&](const std::string& content, mode_t mode) {
    std::ofstream(path) << content;
    EXPECT_EQ(::chmod(path.c_str(), mode), 0);
    return says(path);
  };
  EXPECT_EQ(says(""),
            "127 softhca: run: the program's name is empty (is a variable not set?); softhca run "
            "[OPTIONS] [--] PROGRAM [ARGUMENTS]...\n");
  EXPECT_EQ(says(runtime().string()),
            "126 softhca: " + runtime().string() + ": it is a directory\n");
  EXPECT_EQ(says_of("#!/bin/sh\n", 0600),
            "126 softhca: " + path + ": it is not executable (chmod +x makes it so)\n");
  EXPECT_EQ(says_of("#! \t/no/such -e\necho\n", 0700),
            "127 softhca: " + path + ": its interpreter /no/such: No such file or directory\n");
  EXPECT_EQ(says_of("#!/dev/null\n", 0700),
            "126 softhca: " + path + ": its interpreter /dev/null: Permission denied\n");
  EXPECT_EQ(says_of("#!/bin/sh\r\necho\r\n", 0700),
            "127 softhca: " + path +
                ": its first line, with the interpreter /bin/sh, ends with CR LF instead of LF\n");
  EXPECT_EQ(says_of("#!/bin/sh\necho runs\n", 0700), "0 runs\n");
  EXPECT_EQ(says(path + "/below"), "126 softhca: " + path + "/below: Not a directory\n");
}

// If a hub could make no rings, it would be useless to later runs too.
TEST_F(RunCommandTest, WithASmallFileLimitNoNetworkIsStarted) {
  const auto limited = [this](const std::string& options) {
    const auto line = std::string("ulimit -f 1000; " SOFTHCA_PROGRAM " run ") + options +
                      " -- true; echo status $?";
    EXPECT_EQ(run({"--fabric", "outer", "--", "sh", "-c", line}), 0);
    return out();
  };
  for (const auto* options : {"--private", "--fabric inner"}) {
    EXPECT_THAT(limited(options), AllOf(HasSubstr("ulimit -f"), HasSubstr("status 1"))) << options;
  }
  EXPECT_EQ(limited("--fabric outer"), "status 0\n") << "that network is there";
}

}  // namespace
}  // namespace softhca::hub
