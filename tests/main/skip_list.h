// The tests that may be skipped, with the reasons that they may give.
#pragma once

#include <istream>
#include <string>
#include <string_view>
#include <vector>

namespace softhca::test {

class SkipList {
 public:
  /// Reads the lines `PATTERN | MESSAGE | when` of skips.txt. Lines of another form allow nothing.
  explicit SkipList(std::istream& lines);

  /// Whether the test `name` (SUITE.TEST) may be skipped with the message that it gave to
  /// GTEST_SKIP.
  bool allows(const std::string& name, std::string_view message) const;

 private:
  struct Entry {
    std::string pattern;  ///< of fnmatch(3)
    std::string message;
  };

  std::vector<Entry> entries_;
};

}  // namespace softhca::test
