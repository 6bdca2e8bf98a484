// `softhca run`, run from a shell: the program, its environment, its devices and how it ends.
#include "run_command.h"

#include <gmock/gmock.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include "hub/join.h"
#include "os/unix_socket.h"

namespace softhca::hub {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST_F(RunCommandTest, AProgramThatNoLibraryReachesIsRunAndItsUserIsWarned) {
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
  EXPECT_THAT(out("answer"), StartsWith("softhca:\n  hub:\n    processes: 0\n    joined: 0\n"))
      << "no process has a device yet";
  EXPECT_THAT(out("answer"), Not(HasSubstr("trunk")));
  EXPECT_EQ(wait(start_softhca({"inspect", control, "hub"}, "answer")), 0);
  EXPECT_THAT(out("answer"), StartsWith("softhca:\n  hub:\n    processes: 0\n"));
  for (const char* const missing : {"trunk", "mlx5_9"}) {
    EXPECT_EQ(wait(start_softhca({"inspect", control, missing}, "answer")), 1);
    EXPECT_THAT(out("answer"), HasSubstr(std::string("shows a function '") + missing + "'"));
  }
  EXPECT_EQ(wait(start_softhca({"fault", control, "list"}, "answer")), 0);
  EXPECT_EQ(out("answer"), "");
  EXPECT_EQ(wait(start_softhca({"fault", control, "add", "function=sdxi0,do=fail"}, "answer")), 1);
  EXPECT_THAT(out("answer"), HasSubstr("unknown key 'function'"));
  // Stands for a process that answers, as the preloaded library does.
  os::UniqueFd listener = *os::bind_unix(directory + "/name.1", "test");
  ASSERT_EQ(::listen(listener.get(), 1), 0);
  const auto asks = start_softhca({"inspect", "--json", control, "mlx5_0"}, "answer");
  pollfd comes_in{.fd = listener.get(), .events = POLLIN, .revents = 0};
  ASSERT_EQ(::poll(&comes_in, 1, 20'000), 1);
  {
    const os::UniqueFd asked(::accept(listener.get(), nullptr, nullptr));
    char line[64] = "";
    ASSERT_GT(::read(asked.get(), line, sizeof line - 1), 0);
    EXPECT_STREQ(line, "inspect 1 0 16 mlx5_0\n");
    constexpr std::string_view kAnswer = "ok\n{\"a\": 1}\n";
    ASSERT_EQ(::write(asked.get(), kAnswer.data(), kAnswer.size()), ssize_t{kAnswer.size()});
  }
  EXPECT_EQ(wait(asks), 0);
  EXPECT_EQ(out("answer"), "{\n\"name.1\": {\"a\": 1}\n}\n");
  // A stopped process must not delay the answers of others.
  const auto stopped = *os::bind_unix(directory + "/stopped.2", "test");
  ASSERT_EQ(::listen(stopped.get(), 1), 0);
  const auto asks_both = start_softhca({"inspect", control}, "answer");
  ASSERT_EQ(::poll(&comes_in, 1, 20'000), 1);
  {
    const os::UniqueFd asked(::accept(listener.get(), nullptr, nullptr));
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

TEST_F(RunCommandTest, PreloadedLibrariesStayBehindOurs) {
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
  EXPECT_EQ(run({"--", runtime().string()}), 126);
  EXPECT_TRUE(nothing_is_left());
}

TEST_F(RunCommandTest, AMissingProgramIsNamedWithItsPackageOrTheNearestName) {
  const std::string path = ::getenv("PATH");
  ::setenv("PATH", runtime().c_str(), 1);
  const auto says = [this](const char* program) {
    EXPECT_EQ(run({"--", program}), 127);
    return out();
  };
  constexpr auto kMissing = ": there is no such program";
  for (const auto& [program, package] :
       {std::pair("ibv_devinfo", "ibverbs-utils"), std::pair("ib_write_bw", "perftest"),
        std::pair("rping", "rdmacm-utils")}) {
    EXPECT_THAT(says(program), HasSubstr(std::string(program) + kMissing +
                                         " (Debian has it in the package " + package + ")\n"));
  }
  EXPECT_THAT(says("ib_writ_bw"), HasSubstr(std::string(kMissing) + " (ib_write_bw?)\n"));
  EXPECT_THAT(says("ibv_devnfo"), HasSubstr(std::string(kMissing) + " (ibv_devinfo?)\n"));
  EXPECT_THAT(says("ibv_no_such_program"), HasSubstr(std::string(kMissing) + "\n"));
  ::setenv("PATH", path.c_str(), 1);
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

// `make softhca` builds the program without the library.
TEST_F(RunCommandTest, BesideAProgramWithoutTheLibraryItSaysHowToBuildIt) {
  const auto alone = file("softhca");
  std::filesystem::copy_file(SOFTHCA_PROGRAM, alone);
  EXPECT_EQ(run({"--", "env", "-u", "SOFTHCA_LIBRARY", alone, "run", "true"}), 1);
  EXPECT_THAT(out(), HasSubstr("run `make` where softhca was built"));
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

}  // namespace
}  // namespace softhca::hub
