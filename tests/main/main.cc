/// main() of all test programs: GoogleTest's, but it fails if a test is skipped or disabled that
/// tests/main/skips.txt does not list, or if a selected test has not run.

#include <cstdio>
#include <fstream>
#include <string>
#include <string_view>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "main/skip_list.h"

namespace {

softhca::test::SkipList listed_skips() {
  std::ifstream file(SOFTHCA_SKIPS);
  return softhca::test::SkipList(file);
}

class EachTestRuns final : public testing::EmptyTestEventListener {
 public:
  bool is_true() const { return missing_ == 0; }

 private:
  void OnTestIterationStart(const testing::UnitTest& /*unit*/, int /*iteration*/) override {
    ended_ = 0;
  }
  void OnTestDisabled(const testing::TestInfo& test) override { check(test, "disabled"); }
  void OnTestEnd(const testing::TestInfo& test) override {
    ++ended_;
    for (int i = 0; i < test.result()->total_part_count(); ++i) {
      const auto& part = test.result()->GetTestPartResult(i);
      if (part.skipped()) check(test, part.summary());
    }
  }
  /// Finds tests that an environment's SetUp() skips, and a filter that selects none.
  void OnTestIterationEnd(const testing::UnitTest& unit, int /*iteration*/) override {
    const int selected = unit.test_to_run_count();
    if (selected > 0 && ended_ == selected) return;
    ++missing_;
    std::fprintf(stderr, "%d of %d selected tests have run\n", ended_, selected);
  }

  void check(const testing::TestInfo& test, std::string_view message) {
    const std::string name = std::string(test.test_suite_name()) + '.' + test.name();
    if (listed_.allows(name, message)) return;
    ++missing_;
    std::fprintf(stderr, "%s was skipped, and %s does not list it with the message '%.*s'\n",
                 name.c_str(), SOFTHCA_SKIPS, static_cast<int>(message.size()), message.data());
  }

  softhca::test::SkipList listed_ = listed_skips();
  int missing_ = 0;
  int ended_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  auto* const each = new EachTestRuns;  // GoogleTest owns it
  testing::UnitTest::GetInstance()->listeners().Append(each);
  const int status = RUN_ALL_TESTS();
  return status != 0 || each->is_true() ? status : 1;
}
