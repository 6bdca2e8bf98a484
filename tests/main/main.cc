/// main() of all test programs: GoogleTest's, but a skipped test that tests/main/skips.txt does not
/// list fails.

#include <fnmatch.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace {

/// The patterns of skips.txt: the first word of each line that is not a comment.
std::vector<std::string> allowed_skips() {
  std::ifstream file(SOFTHCA_SKIPS);
  std::vector<std::string> patterns;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty() && line[0] != '#') patterns.push_back(line.substr(0, line.find(' ')));
  }
  return patterns;
}

class SkipsAreListed final : public testing::EmptyTestEventListener {
 public:
  bool all_are_listed() const { return unlisted_ == 0; }

 private:
  void OnTestEnd(const testing::TestInfo& test) override {
    if (!test.result()->Skipped()) return;
    const std::string name = std::string(test.test_suite_name()) + '.' + test.name();
    const bool listed =
        std::any_of(patterns_.begin(), patterns_.end(), [&](const std::string& pattern) {
          return ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
        });
    if (listed) return;
    ++unlisted_;
    std::fprintf(stderr, "%s was skipped, and is not in %s\n", name.c_str(), SOFTHCA_SKIPS);
  }

  std::vector<std::string> patterns_ = allowed_skips();
  int unlisted_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  auto* const skips = new SkipsAreListed;  // GoogleTest owns it
  testing::UnitTest::GetInstance()->listeners().Append(skips);
  const int status = RUN_ALL_TESTS();
  return status != 0 || skips->all_are_listed() ? status : 1;
}
