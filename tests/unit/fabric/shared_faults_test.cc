// Network rules in a file that processes share.
#include "fabric/shared_faults.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>

#include "fabric/faulty_link.h"
#include "recorder.h"
#include "util/log.h"

namespace softhca::fabric {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

class SharedFaultsTest : public testing::Test {
 protected:
  SharedFaultsTest() {
    EXPECT_NE(::mkdtemp(directory_.data()), nullptr);
    book_.emplace(FaultBook::create(directory_ + "/rules", {"a", kLong}).value());
  }
  ~SharedFaultsTest() override { std::filesystem::remove_all(directory_); }

  std::string answer(std::string_view verb, std::string_view argument = {}) {
    const auto answer = book_->answer(verb, argument);
    return answer ? *answer : "error: " + answer.error().message;
  }

  /// The name of a port, longer than a rule may be.
  const std::string kLong = std::string(500, 'a');
  std::string directory_ = "/tmp/softhca-rules-XXXXXX";
  std::optional<FaultBook> book_;
};

/// A process of the run, with one device.
struct Member {
  explicit Member(const std::string& path) : reader(path, faults) {}
  /// Sends frames, and returns how many arrive.
  std::size_t send(int frames) {
    reader.follow();
    below.texts.clear();
    for (int i = 0; i != frames; ++i) link.transmit(frame_of(kB, kA, "x"));
    return below.texts.size();
  }

  RecordingPort below;
  NetworkFaults faults{[] { return util::Time{}; }};
  FaultyLink link{below, faults, "a", 0};
  FaultReader reader;
};

TEST_F(SharedFaultsTest, ProcessesSeeRulesThatComeAndGo) {
  Member first(book_->path());
  EXPECT_EQ(first.send(2), 2u);
  EXPECT_EQ(answer("add", "port=a,do=lose"), "n1: port=a,do=lose: matched 0, fired 0\n");
  EXPECT_EQ(first.send(2), 0u);
  Member later(book_->path());
  EXPECT_EQ(later.send(2), 0u);
  EXPECT_EQ(answer("list"), "n1: port=a,do=lose: matched 4, fired 4\n");
  EXPECT_EQ(answer("remove", "n1"), "");
  EXPECT_EQ(first.send(2), 2u);
  EXPECT_EQ(later.send(2), 2u);
}

TEST_F(SharedFaultsTest, TheNthFrameIsThatOfAllProcesses) {
  answer("add", "port=*,nth=3,do=lose");
  Member first(book_->path()), second(book_->path());
  EXPECT_EQ(first.send(2), 2u);
  EXPECT_EQ(second.send(2), 1u);
  EXPECT_EQ(first.send(2), 2u);
  EXPECT_EQ(answer("clear"), "n1: port=*,nth=3,do=lose: matched 6, fired 1\n");
  EXPECT_EQ(answer("list"), "");
}

TEST_F(SharedFaultsTest, ASlotIsUsedAgainWithNewCounters) {
  Member member(book_->path());
  for (unsigned i = 1; i != 200; ++i) {
    const auto added = answer("add", "port=a,do=duplicate");
    EXPECT_THAT(added, HasSubstr("matched 0, fired 0"));
    EXPECT_EQ(member.send(1), 2u);
    EXPECT_EQ(answer("remove", fmt::format("n{}", i)), "");
  }
  EXPECT_EQ(member.send(1), 1u);
  for (std::size_t i = 0; i != SharedFaults::kSlots; ++i) answer("add", "port=a,do=lose");
  EXPECT_THAT(answer("add", "port=a,do=lose"), HasSubstr("64 rules already"));
}

TEST_F(SharedFaultsTest, WrongRequestsSayWhatIsWrong) {
  EXPECT_THAT(answer("add", "do=fail"), HasSubstr("error: "));
  EXPECT_THAT(answer("remove", "n7"), HasSubstr("there is no rule 'n7'"));
  EXPECT_THAT(answer("list", "x"), HasSubstr("takes no argument"));
  EXPECT_THAT(answer("show"), HasSubstr("fault takes add RULE"));
  EXPECT_THAT(answer("add", "port=" + kLong + ",do=lose"), HasSubstr("at most"));
  EXPECT_EQ(answer("add", "port=b,do=lose"), "error: there is no port 'b'");
}

// Any process of the run may write to the file.
TEST_F(SharedFaultsTest, AFileOfAHostileProcessGivesNoRule) {
  answer("add", "port=a,do=lose");
  Member member(book_->path());
  {
    NetworkFaults faults;
    const auto* const path = book_->path().c_str();
    ASSERT_EQ(::truncate(path, 0), 0);
    FaultReader reader(path, faults);
    EXPECT_THAT(faults.rules(), IsEmpty());
    ASSERT_EQ(::truncate(path, sizeof(SharedFaults)), 0);
  }
  EXPECT_EQ(answer("list"), "n1: port=a,do=lose: matched 0, fired 0\n");
  NetworkFaults faults;
  FaultReader missing(directory_ + "/none", faults);
  missing.follow();
  EXPECT_THAT(faults.rules(), IsEmpty());
}

TEST_F(SharedFaultsTest, AProcessThatCannotUseTheRulesSaysWhy) {
  std::string seen;
  util::set_log_sink([&](util::LogLevel, std::string_view text) { seen += text; });
  NetworkFaults faults;
  const FaultReader good(book_->path(), faults);
  EXPECT_EQ(seen, "");
  const FaultReader missing(directory_ + "/none", faults);
  EXPECT_EQ(seen, "the network rules of the run do not act here: " + directory_ +
                      "/none: No such file or directory");
  seen.clear();
  ASSERT_EQ(::truncate(book_->path().c_str(), sizeof(SharedFaults) - 1), 0);
  const FaultReader cut(book_->path(), faults);
  util::set_log_sink(nullptr);
  EXPECT_THAT(seen, HasSubstr("/rules: too short"));
}

}  // namespace
}  // namespace softhca::fabric
