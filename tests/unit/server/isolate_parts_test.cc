// Parts of a server with processes: groups of devices, the command line of a process, its log.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <optional>

#include "server/isolate/groups.h"
#include "server/isolate/log_pipe.h"
#include "server/isolate/process_options.h"
#include "server/isolate/spawn.h"

namespace softhca::server {
namespace {

using ::testing::ElementsAre;
using util::LogLevel;

std::vector<DeviceGroup> groups_of(const std::vector<std::string>& texts) {
  std::vector<DeviceSpec> specs;
  std::vector<std::string> guests;
  for (const auto& text : texts) {
    specs.push_back(parse_device(text, static_cast<unsigned>(specs.size())).value());
    guests.push_back(guest_of(text));
  }
  return group_devices(specs, guests);
}

TEST(Groups, ADeviceOfWhichNoGuestIsSaidIsByItself) {
  EXPECT_THAT(groups_of({"connectx", "connectx", "sdxi"}),
              ElementsAre(ElementsAre(0), ElementsAre(1), ElementsAre(2)));
}

TEST(Groups, DevicesOfOneGuestAreTogether) {
  EXPECT_THAT(groups_of({"connectx,guest=a", "connectx,guest=b", "sdxi,guest=a"}),
              ElementsAre(ElementsAre(0, 2), ElementsAre(1)));
}

TEST(Groups, DataMoversOfWhichNoGuestIsSaidShareKeysAndAreTogether) {
  EXPECT_THAT(groups_of({"sdxi", "connectx", "sdxi", "sdxi,guest=a"}),
              ElementsAre(ElementsAre(0, 2), ElementsAre(1), ElementsAre(3)));
}

TEST(Groups, AVirtualFunctionIsGroupedWithItsPhysicalOneInAnyGuest) {
  EXPECT_THAT(groups_of({"sdxi,vfs=2,name=pf,guest=a", "sdxi-vf,pf=pf", "sdxi-vf,pf=pf,guest=b",
                         "connectx,guest=b", "sdxi"}),
              ElementsAre(ElementsAre(0, 1, 2, 3), ElementsAre(4)));
}

TEST(Groups, TheGuestIsPartOfADevicesText) {
  EXPECT_EQ(guest_of("connectx,guest=a,name=b"), "a");
  EXPECT_EQ(guest_of("connectx,name=guest"), "");
  EXPECT_TRUE(parse_device("connectx,guest=a", 0));
  EXPECT_TRUE(parse_device("sdxi,guest=a,vfs=1", 0));
  const auto empty = parse_device("connectx,guest=", 0);
  ASSERT_FALSE(empty);
  EXPECT_EQ(empty.error().message, "guest= is empty");
}

TEST(ProcessOptions, AreWhatTheirWordsSay) {
  const ProcessOptions options{.devices = {"connectx,name=--odd", "sdxi"},
                               .places = {3, 7},
                               .listeners = {10, 11},
                               .rings = {12, 13},
                               .channel = 14,
                               .wake_socket = 15,
                               .faults = {"function=a,do=fail", "do=stall"},
                               .poll_us = 5,
                               .measure_turns = true,
                               .verbose = true};
  auto words = to_words(options);
  std::ranges::reverse(words);  // the order in which CLI11 takes them
  CLI::App app;
  ProcessOptions parsed;
  add_process(app, parsed);
  app.parse(words);
  EXPECT_EQ(parsed.devices, options.devices);
  EXPECT_EQ(parsed.places, options.places);
  EXPECT_EQ(parsed.listeners, options.listeners);
  EXPECT_EQ(parsed.rings, options.rings);
  EXPECT_EQ(parsed.channel, 14);
  EXPECT_EQ(parsed.wake_socket, 15);
  EXPECT_EQ(parsed.faults, options.faults);
  EXPECT_EQ(parsed.poll_us, 5u);
  EXPECT_TRUE(parsed.measure_turns);
  EXPECT_TRUE(parsed.verbose);
}

TEST(ProcessOptions, NoHelpShowsTheCommand) {
  CLI::App app;
  ProcessOptions options;
  add_process(app, options);
  EXPECT_EQ(app.help().find("device-process"), std::string::npos);
}

class LogPipeTest : public ::testing::Test {
 protected:
  LogPipeTest() {
    int fds[2];
    EXPECT_EQ(::pipe2(fds, O_CLOEXEC | O_NONBLOCK), 0);
    writer_ = os::UniqueFd(fds[1]);
    log_ = LogPipe::create(*loop_, os::UniqueFd(fds[0]), [this](auto level, auto text) {
             lines_.emplace_back(level, text);
           }).value();
  }
  void run() {
    while (loop_->run_once(util::Time{}) != 0) {
    }
  }
  void write(std::string_view text) {
    ASSERT_EQ(::write(writer_.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
    run();
  }
  std::unique_ptr<os::EventLoop> loop_ = os::EventLoop::create().value();
  os::UniqueFd writer_;
  std::vector<std::pair<LogLevel, std::string>> lines_;
  std::unique_ptr<LogPipe> log_;
};

TEST_F(LogPipeTest, LinesKeepTheirLevelAndText) {
  log_to_pipe(writer_.get(), LogLevel::kWarning, "beware");
  log_to_pipe(writer_.get(), LogLevel::kInfo, "all is well");
  run();
  EXPECT_THAT(lines_, ElementsAre(std::pair(LogLevel::kWarning, "beware"),
                                  std::pair(LogLevel::kInfo, "all is well")));
}

TEST_F(LogPipeTest, ALineThatIsNoLogLineIsAnError) {
  write("device.cc:7: Assertion failed\n");
  EXPECT_THAT(lines_, ElementsAre(std::pair(LogLevel::kError, "device.cc:7: Assertion failed")));
}

TEST_F(LogPipeTest, ALineInPiecesIsOneAndALongOneIsCut) {
  write("softhca: info: a");
  EXPECT_TRUE(lines_.empty());
  write("b\n");
  EXPECT_THAT(lines_, ElementsAre(std::pair(LogLevel::kInfo, "ab")));
  lines_.clear();
  write(std::string(LogPipe::kLineMax + 5, 'x') + "\n");
  ASSERT_EQ(lines_.size(), 2u);
  EXPECT_EQ(lines_[0].second.size(), LogPipe::kLineMax);
}

TEST_F(LogPipeTest, ControlCharactersAreReplaced) {
  write("a\x1b[31mb\r\x7f\n");
  EXPECT_THAT(lines_, ElementsAre(std::pair(LogLevel::kError, "a?[31mb??")));
}

TEST_F(LogPipeTest, TheRestComesAtTheEnd) {
  write("softhca: info: last words");
  log_.reset();
  EXPECT_THAT(lines_, ElementsAre(std::pair(LogLevel::kInfo, "last words")));
}

TEST_F(LogPipeTest, AFloodWaitsForTheNextSecond) {
  std::string piece;
  while (piece.size() != 4096) piece += std::string(63, 'x') + "\n";
  std::size_t sent = 0;
  const auto start = util::monotonic_now();
  for (std::size_t i = 0; i != 4 * LogPipe::kBurst / piece.size(); ++i) {
    const auto size = ::write(writer_.get(), piece.data(), piece.size());
    if (size > 0) sent += static_cast<std::size_t>(size);
    run();
  }
  EXPECT_GE(sent, LogPipe::kBurst);
  const auto seconds =
      static_cast<std::size_t>((util::monotonic_now() - start) / std::chrono::seconds(1));
  EXPECT_GE(lines_.size(), LogPipe::kBurst / 64);
  EXPECT_LE(lines_.size(), (1 + seconds) * LogPipe::kBurst / 64);
}

TEST_F(LogPipeTest, LinesThatThePipeDoesNotTakeAreCounted) {
  const std::string line(1000, 'x');
  for (int i = 0; i != 100; ++i) log_to_pipe(writer_.get(), LogLevel::kInfo, line);
  run();
  const auto taken = lines_.size();
  EXPECT_LT(taken, 100u);
  log_to_pipe(writer_.get(), LogLevel::kInfo, "later");
  run();
  ASSERT_EQ(lines_.size(), taken + 2);
  EXPECT_EQ(lines_[taken].second,
            std::to_string(100 - taken) + " lines are lost here: too many at once");
}

TEST(Spawn, OnlyGivenDescriptorsAreInherited) {
  int out[2], other[2];
  ASSERT_EQ(::pipe2(out, O_CLOEXEC), 0);
  ASSERT_EQ(::pipe2(other, O_CLOEXEC), 0);
  const int given[] = {other[1]};
  const auto pid = spawn_program(
      "/bin/sh",
      {"-c", "[ -e /dev/fd/$0 ] && [ ! -e /dev/fd/$1 ] && echo good >&2; kill -SEGV $$",
       std::to_string(other[1]), std::to_string(other[0])},
      given, out[1]);
  ASSERT_TRUE(pid);
  int status = 0;
  ASSERT_EQ(::waitpid(*pid, &status, 0), *pid);
  EXPECT_EQ(describe_end(status), "signal 11 (Segmentation fault)");
  char text[16]{};
  EXPECT_EQ(::read(out[0], text, 5), 5);
  EXPECT_STREQ(text, "good\n");
  for (const int fd : {out[0], out[1], other[0], other[1]}) ::close(fd);
}

TEST(Spawn, ReportsWhatKindOfEndItWas) {
  EXPECT_EQ(describe_end(3 << 8), "exit status 3");
  EXPECT_EQ(describe_end(SIGSYS), "a system call that it may not use (SIGSYS)");
}

}  // namespace
}  // namespace softhca::server
