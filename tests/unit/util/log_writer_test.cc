// The logging thread never waits for the reader of the log.
#include "util/log_writer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string>

namespace softhca::util {
namespace {

using std::chrono::seconds;

struct Pipe {
  Pipe() { EXPECT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0); }
  ~Pipe() {
    close_reader();
    ::close(ends[1]);
  }
  void close_reader() {
    if (ends[0] >= 0) ::close(ends[0]);
    ends[0] = -1;
  }
  /// Reads until the text ends with `end`, or nothing more arrives for 20 seconds.
  std::string read_until(std::string_view end) {
    std::string text;
    std::array<char, 65536> buffer;
    pollfd more{.fd = ends[0], .events = POLLIN, .revents = 0};
    while (!text.ends_with(end) && ::poll(&more, 1, 20'000) == 1) {
      const auto size = ::read(ends[0], buffer.data(), buffer.size());
      if (size <= 0) break;
      text.append(buffer.data(), static_cast<std::size_t>(size));
    }
    return text;
  }
  std::array<int, 2> ends{-1, -1};
};

std::size_t lines(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count(text, '\n'));
}

TEST(LogWriter, WritesLinesInOrder) {
  Pipe pipe;
  LogWriter writer(pipe.ends[1]);
  writer.write(LogLevel::kInfo, "first");
  writer.write(LogLevel::kWarning, "second");
  EXPECT_EQ(pipe.read_until("second\n"), "softhca: info: first\nsofthca: warning: second\n");
}

TEST(LogWriter, AReaderThatDoesNotReadDelaysNoWriterAndLearnsWhatItMissed) {
  Pipe pipe;
  LogWriter writer(pipe.ends[1], 100'000);
  constexpr std::size_t kLines = 20'000;
  const std::string text(60, 'x');
  const auto start = monotonic_now();
  for (std::size_t i = 0; i < kLines; ++i) writer.write(LogLevel::kInfo, text);
  EXPECT_LT(monotonic_now() - start, seconds(20)) << "on a machine that has much else to do";
  std::string seen;
  std::size_t accounted = 0, lost = 0;
  while (accounted < kLines) {
    seen = pipe.read_until("\n");
    ASSERT_FALSE(seen.empty()) << "lines are neither there nor counted";
    accounted += lines(seen);
    constexpr std::string_view kLost = "softhca: warning: ";
    for (auto at = seen.find(kLost); at != std::string::npos; at = seen.find(kLost, at + 1)) {
      const auto here = std::stoul(seen.substr(at + kLost.size()));
      accounted += here - 1;
      lost += here;
    }
  }
  EXPECT_EQ(accounted, kLines) << "each is either there or counted";
  EXPECT_GT(lost, 0u);
  writer.write(LogLevel::kInfo, "after it");
  EXPECT_EQ(pipe.read_until("after it\n"), "softhca: info: after it\n");
}

TEST(LogWriter, AReaderThatIsGoneEndsNoWriter) {
  // Runs in a process of its own, because SIGPIPE would end it. The process must have no threads of
  // other tests.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto write_to_nobody = [] {
    Pipe pipe;
    pipe.close_reader();
    {
      LogWriter writer(pipe.ends[1]);
      for (int i = 0; i < 100; ++i) writer.write(LogLevel::kInfo, "into the void");
    }
    ::_exit(0);
  };
  EXPECT_EXIT(write_to_nobody(), ::testing::ExitedWithCode(0), "");
}

TEST(LogWriter, ItsEndWritesWhatIsLeftButDoesNotWaitForAReader) {
  Pipe read, unread;
  {
    LogWriter writer(read.ends[1]);
    writer.write(LogLevel::kInfo, "the last words");
  }
  EXPECT_EQ(read.read_until("words\n"), "softhca: info: the last words\n");
  const auto start = monotonic_now();
  {
    LogWriter writer(unread.ends[1]);
    for (int i = 0; i < 10'000; ++i) writer.write(LogLevel::kInfo, std::string(80, 'x'));
  }
  EXPECT_LT(monotonic_now() - start, seconds(20));
}

}  // namespace
}  // namespace softhca::util
