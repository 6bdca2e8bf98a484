#include "util/log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <string>

namespace softhca::util {
namespace {

using std::chrono::milliseconds;

TEST(RateLimiter, LetsABurstThroughAndCountsWhatItHoldsBack) {
  RateLimiter limiter(2, milliseconds(100));
  std::uint64_t held_back = 99;
  EXPECT_TRUE(limiter.allow(Time(milliseconds(0)), &held_back));
  EXPECT_TRUE(limiter.allow(Time(milliseconds(1)), &held_back));
  EXPECT_FALSE(limiter.allow(Time(milliseconds(2)), &held_back));
  EXPECT_FALSE(limiter.allow(Time(milliseconds(99)), &held_back));
  EXPECT_TRUE(limiter.allow(Time(milliseconds(100)), &held_back));
  EXPECT_EQ(held_back, 2u);
}

TEST(Log, ALineBelowTheLevelIsNotMade) {
  std::string seen;
  set_log_sink([&](LogLevel, std::string_view text) { seen += text; });
  set_log_level(LogLevel::kInfo);
  log(LogLevel::kDebug, "hidden {}", 1);
  log(LogLevel::kInfo, "shown {}", 2);
  set_log_sink(nullptr);
  EXPECT_EQ(seen, "shown 2");
}

// Standard error of this process is a full pipe.
TEST(Log, ALineWithoutAReaderIsLost) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
  while (::write(ends[1], "x", 1) == 1) {
  }
  ASSERT_EQ(::fcntl(ends[1], F_SETFL, 0), 0);
  const auto pid = ::fork();
  if (pid == 0) {
    ::alarm(20);  // ends it if it waits
    ::dup2(ends[1], STDERR_FILENO);
    log(LogLevel::kWarning, "a line");
    ::_exit(7);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFEXITED(status)) << "it has waited";
  EXPECT_EQ(WEXITSTATUS(status), 7);
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(Log, ALineIsWritten) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const auto pid = ::fork();
  if (pid == 0) {
    ::dup2(ends[1], STDERR_FILENO);
    log(LogLevel::kWarning, "{}", std::string(10'000, 'a'));
    log(LogLevel::kWarning, "the last");
    ::_exit(0);
  }
  ::close(ends[1]);
  std::string all;
  std::array<char, 4096> part;
  for (ssize_t got = 0; (got = ::read(ends[0], part.data(), part.size())) > 0;) {
    all.append(part.data(), static_cast<std::size_t>(got));
  }
  ASSERT_EQ(::waitpid(pid, nullptr, 0), pid);
  ::close(ends[0]);
  EXPECT_TRUE(all.starts_with("softhca: warning: aaa"));
  EXPECT_TRUE(all.ends_with("a\nsofthca: warning: the last\n")) << "a long line is cut";
}

}  // namespace
}  // namespace softhca::util
