// The networks of `softhca run`: their processes, their keeper and their capture.
#include <dirent.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>

#include <chrono>
#include <iterator>
#include <thread>

#include "hub/join.h"
#include "hub/numbers.h"
#include "os/unix_socket.h"
#include "run_command.h"

namespace softhca::hub {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::Not;

/// Whether a run that was to end at `begin` may have left its keeper alone. It waits five seconds
/// for the keeper's end, which takes longer if the keeper gets no processor.
bool gave_up(util::Time begin) { return util::monotonic_now() - begin >= 5s; }

TEST_F(RunCommandTest, TheNextRunRemovesFilesOfAKilledOne) {
  const auto killed = start(
      {"--private", "--", "sh", "-c", "echo $$ > " + file("pid").string() + "; exec sleep 100"});
  const auto lives = start({"--private", "--", "sh", "-c", "echo on; exec sleep 100"}, "other");
  // A directory that is not locked yet looks left over.
  ASSERT_EQ(line_of("other"), "on");
  const auto directories = [&] {
    return std::distance(std::filesystem::directory_iterator(runtime()), {});
  };
  ASSERT_TRUE(comes([&] { return !content_of(file("pid")).empty() && directories() == 2; }));
  ::kill(killed, SIGKILL);
  EXPECT_EQ(wait(killed), -1);
  ::kill(std::stoi(content_of(file("pid"))), SIGKILL);
  EXPECT_EQ(directories(), 2);

  EXPECT_EQ(wait(start({"--private", "--", "true"})), 0);
  EXPECT_EQ(directories(), 1) << "that of the run that lives";
  ::kill(lives, SIGTERM);
  wait(lives);
  EXPECT_EQ(directories(), 0);
}

TEST_F(RunCommandTest, ARunInsideARunHasAddressesOfItsOwn) {
  const auto inside = [this](std::vector<std::string> options) {
    std::vector<std::string> words = {"--address", "198.19.7.1", "--", SOFTHCA_PROGRAM, "run"};
    words.insert(words.end(), options.begin(), options.end());
    words.insert(words.end(), {"--", "sh", "-c", "echo ${SOFTHCA_ADDRESS-any}"});
    EXPECT_EQ(run(words), 0);
    return out();
  };
  EXPECT_EQ(inside({"--address", "198.19.7.2"}), "198.19.7.2\n");
  EXPECT_EQ(inside({}), "any\n");
}

TEST_F(RunCommandTest, RunsOfAUserAreOnOneNetworkUnlessTheyAreToBePrivate) {
  const std::string script = "echo $SOFTHCA_DOOR; exec sleep 100";
  const auto first = start({"--", "sh", "-c", script}, "a");
  const auto door = line_of("a");
  EXPECT_THAT(door, testing::EndsWith("-fabric-default"));
  const std::vector<std::string> show = {"--", "sh", "-c", "echo $SOFTHCA_DOOR"};
  const auto of = [&](std::vector<std::string> words) {
    words.insert(words.end(), show.begin(), show.end());
    EXPECT_EQ(run(words), 0) << out();
    return out();
  };
  EXPECT_EQ(of({}), door + "\n");
  EXPECT_EQ(of({"--fabric", "default"}), door + "\n");
  EXPECT_NE(of({"--fabric", "lab"}), door + "\n");
  EXPECT_THAT(of({"--private"}), HasSubstr("/softhca-run-"));
  EXPECT_EQ(run({"--pcap", file("w.pcapng"), "--", "true"}), 1);
  EXPECT_THAT(out(), HasSubstr("--private"));
  EXPECT_EQ(run({"--private", "--pcap", file("w.pcapng"), "--", "true"}), 0);
  EXPECT_NE(run({"--private", "--fabric", "lab", "--", "true"}), 0);
  const auto begin = util::monotonic_now();
  ::kill(first, SIGTERM);
  (void)wait(first);
  EXPECT_TRUE(gave_up(begin) || std::filesystem::is_empty(runtime()))
      << "the last run leaves nothing, already";
}

TEST_F(RunCommandTest, AShellWithoutARuntimeDirectoryFindsTheNetworkOfTheOthers) {
  // One of several directories that may exist, such as /run/user/UID and /tmp.
  const auto shared = file("t");
  std::filesystem::create_directory(shared);
  ::chmod(shared.c_str(), 01777);
  ::unsetenv("XDG_RUNTIME_DIR");
  const std::string name = "two-shells-" + std::to_string(::getpid());
  const std::vector<std::string> words = {"--fabric", name, "--",
                                          "sh",       "-c", "echo $SOFTHCA_DOOR; exec sleep 100"};
  const auto first = start(words, "a");
  const auto door = line_of("a");
  ::setenv("TMPDIR", shared.c_str(), 1);
  EXPECT_EQ(run({"--fabric", name, "--", "sh", "-c", "echo $SOFTHCA_DOOR"}), 0);
  EXPECT_EQ(out(), door + "\n");
  ::unsetenv("TMPDIR");
  const auto begin = util::monotonic_now();
  ::kill(first, SIGTERM);
  (void)wait(first);
  EXPECT_TRUE(gave_up(begin) || !std::filesystem::exists(door));
}

TEST_F(RunCommandTest, ARuntimeDirectoryThatCannotBeUsedIsNamedInASentence) {
  const auto said = [this](const std::string& directory) {
    ::setenv("XDG_RUNTIME_DIR", directory.c_str(), 1);
    (void)run({"--private", "--", "true"});
    return out();
  };
  EXPECT_THAT(said("/no/such"), HasSubstr("XDG_RUNTIME_DIR='/no/such' does not exist; '"));
  EXPECT_THAT(said("/dev/null/a"),
              HasSubstr("XDG_RUNTIME_DIR='/dev/null/a' cannot be used (Not a directory); '"));
  EXPECT_THAT(said("here"), HasSubstr("XDG_RUNTIME_DIR='here' is not an absolute path; '"));
}

TEST_F(RunCommandTest, TwoNetworksGiveNoAddressTwice) {
  std::vector<pid_t> runs;
  std::vector<unsigned> blocks;
  for (const char* fabric : {"a", "b", "c"}) {
    runs.push_back(start(
        {"--fabric", fabric, "--", "sh", "-c", "echo $SOFTHCA_DOOR; exec sleep 100"}, fabric));
    const auto joined = join(line_of(fabric) + "/hub");
    ASSERT_TRUE(joined);
    blocks.push_back(joined->number / Numbers::kBlock);
  }
  EXPECT_NE(blocks[0], blocks[1]);
  EXPECT_NE(blocks[0], blocks[2]);
  EXPECT_NE(blocks[1], blocks[2]);
  for (const auto pid : runs) ::kill(pid, SIGTERM);
  for (const auto pid : runs) (void)wait(pid);
}

TEST_F(RunCommandTest, TheDirectoryIsTheUsersAloneAndHoldsHubAndTree) {
  EXPECT_EQ(
      run({"--", "sh", "-c",
           "stat -c %a $SOFTHCA_DOOR; test -S $SOFTHCA_DOOR/hub && test -d $SOFTHCA_DOOR/root"}),
      0);
  EXPECT_EQ(out(), "700\n");
}

TEST_F(RunCommandTest, AProcessJoinsItsHub) {
  const auto pid = start({"--", "sh", "-c", "echo $SOFTHCA_DOOR; exec sleep 100"});
  const auto hub = line_of("out") + "/hub";
  {
    const auto a = join(hub), b = join(hub);
    ASSERT_TRUE(a && b);
    EXPECT_NE(a->number, b->number);
  }
  ::kill(pid, SIGTERM);
  (void)wait(pid);
}

TEST_F(RunCommandTest, RunsOfOneFabricShareAHubThatEndsWithTheLast) {
  const std::string script = "echo $SOFTHCA_DOOR; exec sleep 100";
  const auto first = start({"--fabric", "lab", "--", "sh", "-c", script}, "a");
  const auto second = start({"--fabric=lab", "--", "sh", "-c", script}, "b");
  const auto door = line_of("a");
  EXPECT_EQ(line_of("b"), door);
  EXPECT_THAT(door, HasSubstr("fabric-lab"));
  ::kill(first, SIGTERM);
  EXPECT_EQ(wait(first), 128 + SIGTERM);
  {
    const auto joined = join(door + "/hub");
    EXPECT_TRUE(joined) << "the second one goes on";
  }
  ::kill(second, SIGTERM);
  EXPECT_EQ(wait(second), 128 + SIGTERM);
  EXPECT_TRUE(nothing_is_left());
}

TEST_F(RunCommandTest, RunsThatComeAndGoAlwaysHaveAHub) {
  std::vector<pid_t> all;
  for (int i = 0; i < 40; ++i) {
    all.push_back(start({"--fabric", "busy", "--", "sh", "-c", "test -S $SOFTHCA_DOOR/hub"},
                        ("out" + std::to_string(i)).c_str()));
    if (i % 4 == 3) std::this_thread::sleep_for(5ms);
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(wait(all[i]), 0) << out(("out" + std::to_string(i)).c_str());
  }
  EXPECT_TRUE(nothing_is_left());
}

/// 0 if there is none.
pid_t keeper_of(const std::filesystem::path& runtime) {
  pid_t keeper = 0;
  for (const auto& process : std::filesystem::directory_iterator("/proc")) {
    const auto name = process.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (content_of(process.path() / "comm") == "softhca-hub\n" &&
        content_of(process.path() / "environ").find(runtime.string()) != std::string::npos) {
      keeper = std::stoi(name);
    }
  }
  return keeper;
}

TEST_F(RunCommandTest, AFabricWhoseKeeperWasKilledStartsAgain) {
  const std::string script = "echo $SOFTHCA_DOOR; exec sleep 100";
  const auto first = start({"--fabric", "lab", "--", "sh", "-c", script}, "a");
  (void)line_of("a");
  const auto keeper = keeper_of(runtime());
  ASSERT_GT(keeper, 0);
  ::kill(keeper, SIGKILL);
  EXPECT_TRUE(comes([this] { return out("a").find("has gone") != std::string::npos; }));
  EXPECT_EQ(run({"--fabric", "lab", "--", "sh", "-c", "test -S $SOFTHCA_DOOR/hub"}), 0);
  ::kill(first, SIGTERM);
  (void)wait(first);
  EXPECT_TRUE(nothing_is_left());
}

TEST_F(RunCommandTest, AKeeperWithoutDescriptorsTurnsOneAwayAndDoesNotSpin) {
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
  GTEST_SKIP() << "the keeper ends: it seems that a sanitizer wants a descriptor, too";
#endif
#endif
  const auto first =
      start({"--fabric", "lab", "--", "sh", "-c", "echo $SOFTHCA_DOOR; exec sleep 100"}, "a");
  const auto door = line_of("a");
  const auto keeper = keeper_of(runtime());
  ASSERT_GT(keeper, 0);
  rlim_t most = 0;
  const auto files = "/proc/" + std::to_string(keeper) + "/fd";
  for (const auto& file : std::filesystem::directory_iterator(files)) {
    most = std::max<rlim_t>(most, std::stoul(file.path().filename().string()) + 1);
  }
  rlimit normal{};
  ASSERT_EQ(::prlimit(keeper, RLIMIT_NOFILE, nullptr, &normal), 0);
  const rlimit all_in_use{.rlim_cur = most, .rlim_max = normal.rlim_max};
  ASSERT_EQ(::prlimit(keeper, RLIMIT_NOFILE, &all_in_use, nullptr), 0);
  // Not all of them: numbers below the last may still be free.
  std::vector<UniqueFd> runs;
  for (rlim_t i = 0; i != most; ++i) {
    runs.push_back(*os::connect_unix(door + "/runs", "test"));
  }
  const timeval patience{.tv_sec = 20, .tv_usec = 0};
  ::setsockopt(runs.back().get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  char byte;
  EXPECT_EQ(::recv(runs.back().get(), &byte, 1, 0), 0) << "it is turned away";
  clockid_t clock{};
  ASSERT_EQ(::clock_getcpuclockid(keeper, &clock), 0);
  timespec before{}, after{};
  ::clock_gettime(clock, &before);
  std::this_thread::sleep_for(300ms);
  ::clock_gettime(clock, &after);
  const auto spent = std::chrono::seconds(after.tv_sec - before.tv_sec) +
                     std::chrono::nanoseconds(after.tv_nsec - before.tv_nsec);
  EXPECT_LT(spent, 100ms);
  runs.clear();
  ASSERT_EQ(::prlimit(keeper, RLIMIT_NOFILE, &normal, nullptr), 0);
  ::kill(first, SIGTERM);
  (void)wait(first);
  EXPECT_TRUE(nothing_is_left());
}

// softhca run --fabric lab ...
// cat
TEST_F(RunCommandTest, AReaderOfTheOutputDoesNotWaitForTheKeeper) {
  const auto go = file("go").string();
  ASSERT_EQ(::mkfifo(go.c_str(), 0600), 0);
  const auto command =
      std::string(SOFTHCA_PROGRAM) + " run --fabric lab -- sh -c 'echo on; read line <" + go + "'";
  auto* const output = ::popen(command.c_str(), "r");
  EXPECT_EQ(std::fgetc(output), 'o');
  const auto other = start({"--fabric", "lab", "--", "sh", "-c", "echo on; exec sleep 100"}, "a");
  EXPECT_EQ(line_of("a"), "on");
  std::ofstream(go) << "end\n";
  while (std::fgetc(output) != EOF) {
  }
  EXPECT_EQ(::pclose(output), 0);
  EXPECT_EQ(::waitpid(other, nullptr, WNOHANG), 0) << "the fabric was not needed any more";
  ::kill(other, SIGTERM);
  (void)wait(other);
  EXPECT_TRUE(nothing_is_left());
}

TEST_F(RunCommandTest, TheDirectoryOfAKilledKeeperGoesWithTheNextFabric) {
  const auto first = start({"--fabric", "env-1", "--", "sh", "-c", "echo on; exec sleep 100"}, "a");
  (void)line_of("a");
  ::kill(keeper_of(runtime()), SIGKILL);
  EXPECT_TRUE(comes([this] { return out("a").find("has gone") != std::string::npos; }));
  ::kill(first, SIGTERM);
  (void)wait(first);
  EXPECT_FALSE(std::filesystem::is_empty(runtime()));
  EXPECT_EQ(run({"--fabric", "lab", "--", "true"}), 0);
  EXPECT_TRUE(nothing_is_left());
}

TEST_F(RunCommandTest, ANameThatIsNoneIsRefused) {
  EXPECT_EQ(run({"--fabric", "../lab", "--", "true"}), 1);
  EXPECT_THAT(out(), HasSubstr("--fabric '../lab'"));
  EXPECT_EQ(run({"--fabric", "", "--", "true"}), 1);
  EXPECT_THAT(out(), HasSubstr("--fabric ''"));
}

TEST_F(RunCommandTest, ACaptureIsWritten) {
  const auto pcap = file("wire.pcapng");
  EXPECT_EQ(run({"--pcap", pcap, "--", "true"}), 0);
  EXPECT_TRUE(content_of(pcap).starts_with("\x0a\x0d\x0d\x0a"));
}

TEST_F(RunCommandTest, ACaptureOfAFabricIsTheFirstRunsAndErrorsAreReported) {
  EXPECT_EQ(run({"--fabric", "lab", "--pcap", "/nowhere/wire.pcapng", "--", "true"}), 1);
  EXPECT_THAT(out(), HasSubstr("/nowhere/wire.pcapng"));
  EXPECT_TRUE(nothing_is_left());
  const auto first = start({"--fabric", "lab", "--pcap", file("wire.pcapng"), "--", "sh", "-c",
                            "echo on; exec sleep 100"},
                           "a");
  EXPECT_EQ(line_of("a"), "on");
  EXPECT_TRUE(
      comes([this] { return content_of(file("wire.pcapng")).starts_with("\x0a\x0d\x0d\x0a"); }));
  EXPECT_EQ(run({"--fabric", "lab", "--pcap", file("other.pcapng"), "--", "true"}), 1);
  EXPECT_THAT(out(), HasSubstr("the run that comes first captures"));
  ::kill(first, SIGTERM);
  (void)wait(first);
  EXPECT_TRUE(nothing_is_left());
}

}  // namespace
}  // namespace softhca::hub
