// A device process that a guest has taken over does its worst to the server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <time.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "eventually.h"
#include "served_test.h"
#include "server/isolate/log_pipe.h"

namespace softhca::server {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::Not;

/// The process's descriptors, and the protocol that it speaks.
constexpr const char* kPrelude = R"(#!/usr/bin/env -S python3 -S
import mmap, os, struct, sys, threading, time
given = [word[2:].split('=', 1) for word in sys.argv[2:]]
fds = {name: int(value) for name, value in given if name in ('channel', 'wake-socket')}
rings = [int(value) for name, value in given if name == 'ring']
def say(number, text):
    data = struct.pack('=II', len(text), number) + text
    while data:
        try:
            data = data[os.write(fds['channel'], data):]
        except BlockingIOError:
            time.sleep(0.001)
def hear():
    while True:
        try:
            head = os.read(fds['channel'], 8)
            break
        except BlockingIOError:
            time.sleep(0.001)
    if not head:
        sys.exit(0)
    length, number = struct.unpack('=II', head)
    return number, os.read(fds['channel'], length)
say(0, b'ready')
)";

class HostileProcess : public IsolateTest {
 protected:
  /// Serves one NIC and one data mover in processes that run `script`.
  void start_with(const std::string& body) {
    const auto script = directory_ / "process.py";
    std::ofstream(script) << kPrelude << body;
    std::filesystem::permissions(script, std::filesystem::perms::owner_all);
    start({"connectx,name=a", "sdxi,name=b"}, {"--device-program=" + script.string()});
  }
  /// Processor time of the server, which other load on the machine does not change.
  std::chrono::nanoseconds processor_time() const {
    clockid_t clock{};
    timespec time{};
    EXPECT_EQ(::clock_getcpuclockid(server_->pid(), &clock), 0);
    EXPECT_EQ(::clock_gettime(clock, &time), 0);
    return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
  }
  bool wait_for_log(const std::string& text) const {
    return eventually([&] { return log().find(text) != std::string::npos; });
  }
};

TEST_F(HostileProcess, AProcessThatBreaksItsRingIsKilled) {
  start_with(R"(
while True:
    number, request = hear()
    if rings and request.startswith(b'inspect'):
        with mmap.mmap(rings[1], 4096) as header:
            header[0:8] = struct.pack('=Q', 1 << 40)
        os.write(fds['wake-socket'], b'x')
        continue
    say(number, b'ok\n')
)");
  EXPECT_EQ(ask("inspect a"), "error: the process of a does not answer\n");
  EXPECT_TRUE(wait_for_log("of a has ended by signal 9 (Killed): it broke the rules of its rings"));
  EXPECT_EQ(processes()["b"]["starts"], 1);
}

TEST_F(HostileProcess, AProcessThatAnswersNonsenseIsKilled) {
  start_with(R"(
while True:
    number, request = hear()
    if request.startswith(b'inspect'):
        os.write(fds['channel'], b'\xff' * 8)
    else:
        say(number, b'ok\n')
)");
  EXPECT_EQ(ask("inspect a"), "error: the process of a does not answer\n");
  EXPECT_TRUE(wait_for_log("of a has ended by signal 9 (Killed): what it said is no answer"));
}

TEST_F(HostileProcess, AProcessThatSaysTwiceThatItServesIsKilled) {
  start_with(R"(
while True:
    number, request = hear()
    if rings and request.startswith(b'inspect'):
        os.set_blocking(fds['channel'], True)
        while True:
            os.write(fds['channel'], struct.pack('=II', 0, 0) * 8192)
    say(number, b'ok\n')
)");
  EXPECT_EQ(ask("inspect a"), "error: the process of a does not answer\n");
  EXPECT_TRUE(wait_for_log("of a has ended by signal 9 (Killed): it said twice that it serves"));
  std::size_t lines = 0;
  const auto all = log();
  for (auto at = all.find(" serves a\n"); at != all.npos; at = all.find(" serves a\n", at + 1))
    ++lines;
  EXPECT_LE(lines, 2u) << "once for each start";
}

TEST_F(HostileProcess, AProcessThatKeepsEndingIsRestartedMoreAndMoreRarely) {
  start_with(R"(
def end():
    if rings and os.path.exists(os.path.dirname(os.path.realpath(__file__)) + '/go'):
        sys.exit(3)
end()
while True:
    number, request = hear()
    end()
    say(number, b'ok\n')
)");
  const auto begin = util::monotonic_now();
  std::ofstream(directory_ / "go") << "go";
  EXPECT_EQ(ask("inspect a"), "error: the process of a does not answer\n");
  EXPECT_TRUE(wait_for_log("of a has ended by exit status 3"));
  int starts = 0;
  ASSERT_TRUE(eventually([&] {
    const auto now = processes();
    starts = now.contains("a") ? now["a"]["starts"].get<int>() : 0;
    return starts >= 6;
  }));
  // Restarts come after 0.1, 0.2, 0.4, 0.8 and 1.6 s, later on a busy machine, and never sooner.
  EXPECT_GE(util::monotonic_now() - begin, 100ms * ((1 << (starts - 1)) - 1)) << starts;
}

TEST_F(HostileProcess, AnAnswerIsTextAndNothingElse) {
  start_with(R"(
while True:
    number, request = hear()
    say(number, b'ok\n{\x1b[2J}, "b": {"pci": 1}\n')
)");
  const auto text = ask("inspect");
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  EXPECT_THAT(text, HasSubstr("?[2J"));
  EXPECT_EQ(ask("inspect a"), "ok\n{?[2J}, \"b\": {\"pci\": 1}\n");
  EXPECT_EQ(ask("inspect --json a"), "error: this is not JSON\n");
  const auto all = ask("inspect --json").substr(3);
  ASSERT_TRUE(nlohmann::json::accept(all)) << all;
  const auto json = nlohmann::json::parse(all);
  EXPECT_EQ(json["b"]["error"], "error: this is not JSON");
  EXPECT_TRUE(json.contains("processes"));
}

TEST_F(HostileProcess, AProcessDescribesItsOwnDevicesOnly) {
  start_with(R"(
while True:
    number, request = hear()
    say(number, b'ok\nb:\nloop:\n      pci: 1\n')
)");
  const auto all = ask("inspect");
  EXPECT_THAT(all, HasSubstr("\n  a:\n    b:\n    loop:\n        pci: 1\n  b:\n"));
  EXPECT_THAT(all, Not(HasSubstr("\nloop:")));
  EXPECT_THAT(ask("inspect loop"),
              HasSubstr("\n    a:\n      b:\n      loop:\n          pci: 1\n    b:\n"));
}

TEST_F(HostileProcess, AnAnswerOfDeeplyNestedListsHarmsNoOther) {
  start_with(R"(
while True:
    number, request = hear()
    say(number, b'ok\n' + b'{' * 500000 + b'}' * 500000)
)");
  EXPECT_THAT(ask("inspect --json"), HasSubstr("\"processes\""));
  EXPECT_THAT(ask("inspect --json processes"), HasSubstr("\"starts\": 1"));
}

TEST_F(HostileProcess, RulesThatItInventsAreNotListed) {
  start_with(R"(
while True:
    number, request = hear()
    say(number, b'ok\n7: do=stall: matched 3, fired 1\nx: matched 1\n: matched , fired \n')
)");
  EXPECT_EQ(ask("fault list"), "ok\n");
  EXPECT_EQ(ask("fault add do=stall"), "ok\n1: do=stall: matched 0, fired 0\n");
}

TEST_F(HostileProcess, AFloodOfBellsAndLinesDelaysNoOther) {
  const auto start_time = util::monotonic_now();
  start_with(R"(
line = b'softhca: error: ' + b'x' * 3000 + b'\x07\n'
def flood():
    while True:
        time.sleep(0.0001)
        for fd in (fds['wake-socket'], 2):
            os.set_blocking(fd, False)
            try:
                os.write(fd, line)
            except BlockingIOError:
                pass
threading.Thread(target=flood, daemon=True).start()
while True:
    number, request = hear()
    say(number, b'ok\n')
)");
  std::this_thread::sleep_for(500ms);
  const auto before = processor_time();
  EXPECT_THAT(ask("inspect --json processes"), HasSubstr("\"starts\": 1"));
  EXPECT_LT(processor_time() - before, 1s) << "the server had other work first";
  const auto all = log();
  const auto seconds = (util::monotonic_now() - start_time) / 1s + 2;
  EXPECT_LT(all.size(), 2 * static_cast<std::size_t>(seconds) * LogPipe::kBurst);
  EXPECT_THAT(all, Not(HasSubstr("\x07")));
  EXPECT_THAT(all, Not(HasSubstr(std::string(1100, 'x'))));
}

}  // namespace
}  // namespace softhca::server
