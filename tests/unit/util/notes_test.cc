#include "util/notes.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace softhca::util {
namespace {

class NotesTest : public testing::Test {
 protected:
  NotesTest() {
    set_log_sink([this](LogLevel level, std::string_view text) {
      lines.emplace_back(text);
      last_level = level;
    });
  }
  ~NotesTest() override {
    set_log_sink({});
    set_log_level(LogLevel::kInfo);
  }
  std::vector<std::string> lines;
  LogLevel last_level{};
  Notes notes{"card7"};
};

TEST_F(NotesTest, EachLineBeginsWithTheNameOfTheDevice) {
  notes.warn("QP {:#x} failed", 0x41);
  EXPECT_EQ(lines, std::vector<std::string>{"card7: QP 0x41 failed"});
  EXPECT_EQ(last_level, LogLevel::kWarning);
  notes.info("well");
  EXPECT_EQ(lines.back(), "card7: well");
  EXPECT_EQ(last_level, LogLevel::kInfo);
}

TEST_F(NotesTest, NoMoreAreWrittenThanOneCanReadAndTheNextReportsHowManyWereNot) {
  for (int i = 0; i < 1000; ++i) notes.warn("line");
  EXPECT_EQ(lines.size(), Notes::kBurst);
  notes.set_time(Time(Notes::kInterval));
  notes.info("later");
  EXPECT_EQ(lines.back(), "card7: later (980 lines were left out)");
  notes.info("again");
  EXPECT_EQ(lines.back(), "card7: again");
}

TEST_F(NotesTest, LinesForDebuggingAreNotLimited) {
  notes.debug("unseen");
  EXPECT_TRUE(lines.empty());
  set_log_level(LogLevel::kDebug);
  for (int i = 0; i < 100; ++i) notes.debug("seen");
  EXPECT_EQ(lines.size(), 100u);
  EXPECT_EQ(lines.back(), "card7: seen");
}

}  // namespace
}  // namespace softhca::util
