// `softhca run`, run from a shell.
#include "run_command.h"

#include <dirent.h>
#include <gmock/gmock.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>

#include <chrono>
#include <iterator>
#include <thread>

#include "hub/join.h"
#include "hub/numbers.h"
#include "vfio_user/unix_socket.h"

namespace softhca::hub {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST_F(RunCommandTest, WhatAKilledRunLeavesBehindTheNextOneRemoves) {
  const auto killed = start(
      {"--private", "--", "sh", "-c", "echo $$ > " + file("pid").string() + "; exec sleep 100"});
  const auto lives = start({"--private", "--", "sleep", "100"}, "other");
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

TEST_F(RunCommandTest, AProgramThatNoLibraryReachesIsRunAndItsUserIsTold) {
  // The loader loads no other library.
  EXPECT_EQ(run({"--", "/lib64/ld-linux-x86-64.so.2", "--version"}), 0);
  EXPECT_THAT(out(), HasSubstr("linked statically"));
  const auto copy = file("copy");
  std::filesystem::copy_file("/bin/true", copy);
  EXPECT_EQ(run({"--", copy}), 0);
  EXPECT_EQ(out(), "");
  std::filesystem::copy_file("/bin/true", file("sudo"));
  EXPECT_EQ(run({"--", file("sudo")}), 0);
  EXPECT_THAT(out(), HasSubstr("sudo ... softhca run ..."));
  if (::geteuid() != 0) GTEST_SKIP() << "only root gives programs to others";
  ASSERT_EQ(::chown(copy.c_str(), 65534, 65534), 0);
  ASSERT_EQ(::chmod(copy.c_str(), 04755), 0);
  EXPECT_EQ(run({"--", copy}), 0);
  EXPECT_THAT(out(), HasSubstr("set-uid"));
}

TEST_F(RunCommandTest, AnAddressIsGivenOrRefused) {
  EXPECT_EQ(run({"--address", "198.19.7.1", "--", "sh", "-c", "echo at $SOFTHCA_ADDRESS"}), 0);
  EXPECT_EQ(out(), "at 198.19.7.1\n");
  for (const char* wrong : {"198.18.0.1", "127.0.0.1", "239.1.1.1", "198.19.7", "fe80::1"}) {
    EXPECT_NE(run({"--address", wrong, "--", "true"}), 0) << wrong;
    EXPECT_THAT(out(), HasSubstr(wrong));
  }
  EXPECT_NE(run({"--address", "if:no-such-if", "--", "true"}), 0);
  EXPECT_THAT(out(), HasSubstr("no-such-if: this host has no such interface"));
  EXPECT_EQ(run({"--address", "if:lo", "--", "sh", "-c", "echo at $SOFTHCA_ADDRESS"}), 0);
  EXPECT_EQ(out(), "at if:lo\n");
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

TEST_F(RunCommandTest, TheLossIsOfThisRun) {
  const std::vector<std::string> show = {"--", "sh", "-c", "echo ${SOFTHCA_LOSS-none}"};
  const auto of = [&](std::vector<std::string> words) {
    words.insert(words.end(), show.begin(), show.end());
    EXPECT_EQ(run(words), 0);
    return out();
  };
  EXPECT_EQ(of({}), "none\n");
  EXPECT_EQ(of({"--loss", "0.25"}), "0.25,1\n");
  EXPECT_EQ(of({"--loss", "0.25", "--loss-seed", "7"}), "0.25,7\n");
  EXPECT_EQ(of({"--loss", "0.25", "--", SOFTHCA_PROGRAM, "run"}), "none\n") << "inside another";
  EXPECT_NE(run({"--loss", "1.5", "--", "true"}), 0);
}

TEST_F(RunCommandTest, SeveralDevicesStandInATreeOfTheirOwn) {
  const std::string show =
      "ls $SOFTHCA_DOOR/root-2/sys/class/infiniband; echo $SOFTHCA_DEVICES; "
      "cat $SOFTHCA_DOOR/root-2/sys/class/infiniband/*/node_guid";
  constexpr auto kShown = "mlx5_0\nmlx5_1\n2\n0200:00ff:fe00:0000\n0200:00ff:fe00:0001\n";
  EXPECT_EQ(run({"--devices", "2", "--", "sh", "-c", show}), 0);
  EXPECT_EQ(out(), kShown);
  EXPECT_EQ(run({"--device", "connectx,connectx", "--fabric", "lab", "--", "sh", "-c", show}), 0);
  EXPECT_EQ(out(), kShown);
  // A nested run sets its own number of devices.
  EXPECT_EQ(run({"--devices", "2", "--", SOFTHCA_PROGRAM, "run", "--", "sh", "-c",
                 "echo ${SOFTHCA_DEVICES-one}"}),
            0);
  EXPECT_EQ(out(), "one\n");
}

TEST_F(RunCommandTest, DevicesThatCannotBeAreRefusedInWords) {
  for (const char* model : {"rsnic", "jingzhao", "sdxi", "connectx,sdxi"}) {
    EXPECT_NE(run({"--device", model, "--", "true"}), 0) << model;
    EXPECT_THAT(out(), HasSubstr("no library of rdma-core")) << model;
  }
  EXPECT_NE(run({"--device", "connectx5", "--", "true"}), 0);
  EXPECT_THAT(out(), HasSubstr("no model; want connectx"));
  EXPECT_NE(run({"--devices", "3", "--device", "connectx,connectx", "--", "true"}), 0);
  EXPECT_THAT(out(), HasSubstr("--devices 3, but --device names 2 models"));
  EXPECT_NE(run({"--devices", "33", "--", "true"}), 0);
  EXPECT_NE(run({"--address", "198.19.0.1,198.19.0.2", "--", "true"}), 0);
  EXPECT_THAT(out(), HasSubstr("2 addresses, but only 1 device"));
  EXPECT_EQ(run({"--devices", "2", "--address", "198.19.0.1,198.19.0.2", "--", "true"}), 0);
}

TEST_F(RunCommandTest, AControlSocketAnswersWhileTheProgramRuns) {
  const auto control = file("ctl").string();
  const auto pid =
      start({"--control", control, "--", "sh", "-c", "echo $SOFTHCA_CONTROL; exec sleep 100"});
  const auto directory = line_of("out");
  EXPECT_EQ(wait(start_softhca({"inspect", control}, "answer")), 0);
  EXPECT_EQ(out("answer"), "softhca:\n") << "no process has a device yet";
  EXPECT_EQ(wait(start_softhca({"fault", control, "list"}, "answer")), 1);
  EXPECT_THAT(out("answer"), HasSubstr("these devices have no faults"));
  // Stands for a process that answers, as the preloaded library does.
  vfio_user::UniqueFd listener = *vfio_user::bind_unix(directory + "/name.1", "test");
  ASSERT_EQ(::listen(listener.get(), 1), 0);
  const auto asks = start_softhca({"inspect", "--json", control, "mlx5_0"}, "answer");
  pollfd comes_in{.fd = listener.get(), .events = POLLIN, .revents = 0};
  ASSERT_EQ(::poll(&comes_in, 1, 10'000), 1);
  {
    const vfio_user::UniqueFd asked(::accept(listener.get(), nullptr, nullptr));
    char line[64] = "";
    ASSERT_GT(::read(asked.get(), line, sizeof line - 1), 0);
    EXPECT_STREQ(line, "inspect 1 0 16 mlx5_0\n");
    constexpr std::string_view kAnswer = "ok\n{\"a\": 1}\n";
    ASSERT_EQ(::write(asked.get(), kAnswer.data(), kAnswer.size()), ssize_t{kAnswer.size()});
  }
  EXPECT_EQ(wait(asks), 0);
  EXPECT_EQ(out("answer"), "{\n\"name.1\": {\"a\": 1}\n}\n");
  // A stopped process must not delay the answers of others.
  const auto stopped = *vfio_user::bind_unix(directory + "/stopped.2", "test");
  ASSERT_EQ(::listen(stopped.get(), 1), 0);
  const auto asks_both = start_softhca({"inspect", control}, "answer");
  ASSERT_EQ(::poll(&comes_in, 1, 10'000), 1);
  {
    const vfio_user::UniqueFd asked(::accept(listener.get(), nullptr, nullptr));
    constexpr std::string_view kAnswer = "ok\nsofthca:\n  a: 1\n";
    ASSERT_EQ(::write(asked.get(), kAnswer.data(), kAnswer.size()), ssize_t{kAnswer.size()});
  }
  EXPECT_EQ(wait(asks_both), 0);
  EXPECT_THAT(out("answer"),
              AllOf(HasSubstr("a: 1"), HasSubstr("stopped.2:\n"), HasSubstr("it does not answer")));
  listener.reset();
  ::kill(pid, SIGTERM);
  (void)wait(pid);
  EXPECT_FALSE(std::filesystem::exists(control));
  EXPECT_TRUE(nothing_is_left());
}

TEST_F(RunCommandTest, TheProgramHasItsEnvironmentAndGivesItsExitStatus) {
  EXPECT_EQ(run({"--", "sh", "-c", "env | grep -e SOFTHCA -e LD_PRELOAD; exit 3"}), 3);
  EXPECT_THAT(out(), AllOf(HasSubstr("SOFTHCA_DOOR=" + runtime().string() + "/softhca-"),
                           HasSubstr("LD_PRELOAD=" + library_ + "\n")));
  EXPECT_TRUE(nothing_is_left());
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
  ::kill(first, SIGTERM);
  (void)wait(first);
  EXPECT_TRUE(std::filesystem::is_empty(runtime())) << "the last run leaves nothing, already";
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
  ::kill(first, SIGTERM);
  (void)wait(first);
  EXPECT_FALSE(std::filesystem::exists(door));
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

TEST_F(RunCommandTest, OrphansOfTheFirstProcessOfAContainerAreReaped) {
  // Like process 1, it becomes the parent of orphaned descendants.
  const auto pid = ::fork();
  if (pid == 0) {
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    const int to = ::open(file("out").c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0600);
    ::dup2(to, STDOUT_FILENO);
    ::execl(SOFTHCA_PROGRAM, "softhca", "run", "--", "sh", "-c",
            "(sh -c 'echo $$' & wait) | cat; (true & true & true &); echo done; exec sleep 100",
            nullptr);
    ::_exit(99);
  }
  EXPECT_TRUE(comes([this] { return out().find("done") != std::string::npos; }));
  const auto children = "/proc/" + std::to_string(pid) + "/task/" + std::to_string(pid);
  const auto zombies = [&] {
    int count = 0;
    std::istringstream all(content_of(children + "/children"));
    for (std::string child; all >> child;) {
      count += content_of("/proc/" + child + "/stat").find(") Z ") != std::string::npos ? 1 : 0;
    }
    return count;
  };
  EXPECT_TRUE(comes([&] { return zombies() == 0; }));
  ::kill(pid, SIGTERM);
  (void)wait(pid);
}

// Regression: a blocked log write once stopped the hub for all.
TEST_F(RunCommandTest, AReaderThatStopsReadingTheErrorsStopsNoHub) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_NONBLOCK | O_CLOEXEC), 0);
  while (::write(ends[1], "x", 1) == 1) {
  }
  ::fcntl(ends[1], F_SETFL, 0);
  const auto pid = ::fork();
  if (pid == 0) {
    ::dup2(ends[1], STDERR_FILENO);
    const int to = ::open(file("out").c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0600);
    ::dup2(to, STDOUT_FILENO);
    ::execl(SOFTHCA_PROGRAM, "softhca", "run", "--private", "--", "sh", "-c",
            "echo $SOFTHCA_DOOR; exec sleep 100", nullptr);
    ::_exit(99);
  }
  const auto hub = line_of("out") + "/hub";
  {
    auto talks = join(hub);
    ASSERT_TRUE(talks);
    // The hub drops the process, and logs a line about it.
    ASSERT_EQ(::send(talks->socket.get(), "ww", 2, MSG_NOSIGNAL), 2);
    char byte;
    EXPECT_EQ(::recv(talks->socket.get(), &byte, 1, 0), 0);
  }
  EXPECT_TRUE(join(hub)) << "the hub goes on";
  ::kill(pid, SIGTERM);
  EXPECT_EQ(wait(pid), 128 + SIGTERM);
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST_F(RunCommandTest, TheDirectoryIsTheUsersAloneAndHoldsHubAndTree) {
  EXPECT_EQ(
      run({"--", "sh", "-c",
           "stat -c %a $SOFTHCA_DOOR; test -S $SOFTHCA_DOOR/hub && test -d $SOFTHCA_DOOR/root"}),
      0);
  EXPECT_EQ(out(), "700\n");
}

TEST_F(RunCommandTest, WhatWasPreloadedStaysPreloadedBehindOurs) {
  ::setenv("LD_PRELOAD", "libm.so.6", 1);
  EXPECT_EQ(run({"--", "sh", "-c", "echo $LD_PRELOAD"}), 0);
  ::unsetenv("LD_PRELOAD");
  EXPECT_EQ(out(), library_ + ":libm.so.6\n");
}

TEST_F(RunCommandTest, AddressSanitizerLetsOursComeBeforeIt) {
  for (const auto& [before, after] :
       {std::pair("", "verify_asan_link_order=0"), std::pair("a=1", "a=1:verify_asan_link_order=0"),
        std::pair("verify_asan_link_order=1", "verify_asan_link_order=1")}) {
    ::setenv("ASAN_OPTIONS", before, 1);
    EXPECT_EQ(run({"--", "sh", "-c", "echo $ASAN_OPTIONS"}), 0);
    EXPECT_EQ(out(), std::string(after) + "\n");
  }
  ::unsetenv("ASAN_OPTIONS");
}

TEST_F(RunCommandTest, TheProgramsWordsAreItsOwnToTheLetter) {
  EXPECT_EQ(run({"--", "printf", "%s|", "--pcap", "serve", "[a,b]", "", "--", "-h"}), 0);
  EXPECT_EQ(out(), "--pcap|serve|[a,b]||--|-h|");
}

TEST_F(RunCommandTest, AProgramThatIsNotThereIs127) {
  EXPECT_EQ(run({"--", "no-such-program-at-all"}), 127);
  EXPECT_THAT(out(), HasSubstr("no-such-program-at-all: there is no such program"));
  EXPECT_EQ(run({"--", "ibv_no_such_program"}), 127);
  EXPECT_THAT(out(), HasSubstr("ibverbs-utils"));
  EXPECT_EQ(run({"--", "ib_no_such_bw"}), 127);
  EXPECT_THAT(out(), HasSubstr("perftest"));
  EXPECT_EQ(run({"--", runtime().string()}), 126);
  EXPECT_TRUE(nothing_is_left());
}

TEST_F(RunCommandTest, WithoutAProgramItSaysSo) {
  EXPECT_EQ(run({}), 1);
  EXPECT_THAT(out(), HasSubstr("softhca run [OPTIONS] [--] PROGRAM"));
  EXPECT_EQ(run({"--help"}), 0);
  EXPECT_THAT(out(), HasSubstr("Usage: softhca run [OPTIONS] [--] PROGRAM [ARGUMENTS]...\n"));
}

TEST_F(RunCommandTest, TheFirstWordThatIsNoOptionIsTheProgram) {
  EXPECT_EQ(run({"printf", "%s|", "--pcap", "--", "-h"}), 0);
  EXPECT_EQ(out(), "--pcap|--|-h|");
  EXPECT_EQ(run({"--devices", "2", "--private", "--loss=0.5", "sh", "-c", "echo $SOFTHCA_LOSS"}),
            0);
  EXPECT_EQ(out(), "0.5,1\n");
}

TEST_F(RunCommandTest, AScriptWithoutAnInterpreterIsTheShells) {
  const auto script = file("script");
  std::ofstream(script) << "echo $0 $1\n";
  ::chmod(script.c_str(), 0700);
  EXPECT_EQ(run({script, "a"}), 0);
  EXPECT_EQ(out(), script.string() + " a\n");
}

TEST_F(RunCommandTest, WithoutTheLibraryItSaysWhereItLooked) {
  ::setenv("SOFTHCA_LIBRARY", "/nowhere/libsofthca.so", 1);
  EXPECT_EQ(run({"--", "true"}), 1);
  EXPECT_THAT(out(), HasSubstr("/nowhere/libsofthca.so"));
}

TEST_F(RunCommandTest, AProgramThatASignalEndsGives128AndTheSignal) {
  EXPECT_EQ(run({"--", "sh", "-c", "kill -KILL $$"}), 128 + SIGKILL);
}

TEST_F(RunCommandTest, SignalsArePassedOn) {
  for (const int number : {SIGINT, SIGTERM}) {
    const auto pid =
        start({"--", "sh", "-c", "trap 'exit 7' INT TERM; echo on; while :; do sleep 0.05; done"});
    EXPECT_EQ(line_of("out"), "on");
    ::kill(pid, number);
    EXPECT_EQ(wait(pid), 7);
    std::filesystem::remove(file("out"));
  }
  const auto pid = start({"--", "sh", "-c", "echo on; exec sleep 100"});
  EXPECT_EQ(line_of("out"), "on");
  ::kill(pid, SIGINT);
  EXPECT_EQ(wait(pid), 128 + SIGINT);
  EXPECT_TRUE(nothing_is_left());
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

TEST_F(RunCommandTest, AFabricWhoseKeeperWasKilledBeginsAnew) {
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
    runs.push_back(*vfio_user::connect_unix(door + "/runs", "test"));
  }
  clockid_t clock{};
  ASSERT_EQ(::clock_getcpuclockid(keeper, &clock), 0);
  timespec before{}, after{};
  ::clock_gettime(clock, &before);
  std::this_thread::sleep_for(300ms);
  ::clock_gettime(clock, &after);
  const auto spent = std::chrono::seconds(after.tv_sec - before.tv_sec) +
                     std::chrono::nanoseconds(after.tv_nsec - before.tv_nsec);
  EXPECT_LT(spent, 100ms);
  char byte;
  EXPECT_EQ(::recv(runs.back().get(), &byte, 1, MSG_DONTWAIT), 0) << "it is turned away";
  runs.clear();
  ASSERT_EQ(::prlimit(keeper, RLIMIT_NOFILE, &normal, nullptr), 0);
  ::kill(first, SIGTERM);
  (void)wait(first);
  EXPECT_TRUE(nothing_is_left());
}

// softhca run --fabric lab ...
// cat
TEST_F(RunCommandTest, AReaderOfTheOutputDoesNotWaitForTheKeeper) {
  const auto command =
      std::string(SOFTHCA_PROGRAM) + " run --fabric lab -- sh -c 'echo on; sleep 1'";
  auto* const output = ::popen(command.c_str(), "r");
  EXPECT_EQ(std::fgetc(output), 'o');
  const auto other = start({"--fabric", "lab", "--", "sh", "-c", "echo on; exec sleep 30"}, "a");
  EXPECT_EQ(line_of("a"), "on");
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

TEST_F(RunCommandTest, ACaptureOfAFabricIsTheFirstRunsAndErrorsAreTold) {
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
