// A trace whose lines a test reads while it is written.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <functional>
#include <memory>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "util/trace.h"

namespace softhca::test {

/// Must outlive the devices that write to it.
class WrittenTrace {
 public:
  using Format = util::TraceWriter::Format;

  explicit WrittenTrace(Format format = Format::kText,
                        std::function<util::Time()> clock = util::monotonic_now)
      : writer_(std::make_unique<util::TraceWriter>(file_, format, std::move(clock))) {}
  ~WrittenTrace() {
    writer_ = nullptr;
    std::fclose(file_);
  }
  WrittenTrace(const WrittenTrace&) = delete;
  WrittenTrace& operator=(const WrittenTrace&) = delete;

  util::TraceWriter& writer() { return *writer_; }

  /// The text written since the last call.
  std::string since() {
    std::fflush(file_);
    const auto end = std::ftell(file_);
    std::string text(static_cast<std::size_t>(end - at_), '\0');
    std::fseek(file_, at_, SEEK_SET);
    EXPECT_EQ(std::fread(text.data(), 1, text.size(), file_), text.size());
    std::fseek(file_, 0, SEEK_END);
    at_ = end;
    return text;
  }
  /// Returns the whole trace. No device may write to it any more.
  std::string close() {
    writer_ = nullptr;
    at_ = 0;
    return since();
  }

 private:
  std::FILE* file_ = std::tmpfile();
  std::unique_ptr<util::TraceWriter> writer_;
  long at_ = 0;
};

/// "device module: name" of each line, without repeats of the line before.
inline std::vector<std::string> steps_of(const std::string& text) {
  // Time, device, module, name; then optionally a text and fields.
  static const std::regex line(R"re([0-9.]+ ([^"=\n]+?)(?: ".*")?(?: [a-z_]+=0x.*)?)re");
  std::vector<std::string> steps;
  std::istringstream lines(text);
  for (std::string one; std::getline(lines, one);) {
    std::smatch match;
    EXPECT_TRUE(std::regex_match(one, match, line)) << one;
    if (steps.empty() || steps.back() != match[1]) steps.push_back(match[1]);
  }
  return steps;
}

}  // namespace softhca::test
