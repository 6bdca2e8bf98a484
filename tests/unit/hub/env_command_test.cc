// `softhca env`, run from a shell.
#include <gmock/gmock.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "os/unix_socket.h"
#include "run_command.h"

namespace softhca::hub {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class EnvCommandTest : public RunCommandTest {
 protected:
  /// A shell that runs `script`. Its output and errors go to the file `out`.
  pid_t shell(const std::string& script, const char* out = "out") const {
    const auto pid = ::fork();
    if (pid == 0) {
      const int to = ::open(file(out).c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0600);
      ::dup2(to, STDOUT_FILENO);
      ::dup2(to, STDERR_FILENO);
      ::execl("/bin/sh", "sh", "-c", script.c_str(), nullptr);
      ::_exit(99);
    }
    return pid;
  }
  int env(std::vector<std::string> words) const {
    words.insert(words.begin(), "env");
    return wait(start_softhca(std::move(words)));
  }
  /// A pidfd of the process that listens at `path`.
  static os::UniqueFd listener_of(const std::string& path) {
    const auto connection = os::connect_unix(path, "the hub");
    ucred peer{};
    socklen_t size = sizeof peer;
    if (!connection ||
        ::getsockopt(connection->get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
      return {};
    }
    return os::UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, peer.pid, 0)));
  }
  const std::string eval_ = std::string("eval \"$(") + SOFTHCA_PROGRAM + " env)\"; ";
};

TEST_F(EnvCommandTest, AShellThatEvaluatesItHasLibraryHubAndTree) {
  EXPECT_EQ(wait(shell(eval_ + "echo $LD_PRELOAD; test -S $SOFTHCA_DOOR/hub && "
                               "sh -c 'test -d $SOFTHCA_DOOR/root'")),
            0);
  EXPECT_EQ(out(), library_ + "\n");
}

TEST_F(EnvCommandTest, TheSwitchGoesWithTheShell) {
  const auto pid = shell(eval_ + "echo $SOFTHCA_DOOR; exec sleep 100");
  const auto hub = line_of("out") + "/hub";
  EXPECT_TRUE(std::filesystem::exists(hub));
  ::kill(pid, SIGKILL);
  (void)wait(pid);
  EXPECT_TRUE(nothing_is_left());
}

TEST_F(EnvCommandTest, TheSwitchGoesWithTheShellWhereItsDirectoryHasGoneBefore) {
  const auto pid = shell(eval_ + "echo $SOFTHCA_DOOR; exec sleep 100");
  const std::filesystem::path directory = line_of("out");
  const auto keeper = listener_of(directory / "hub");
  ASSERT_TRUE(keeper);
  std::filesystem::remove_all(directory.parent_path());
  ::kill(pid, SIGKILL);
  (void)wait(pid);
  pollfd end{keeper.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&end, 1, 20'000), 1);
}

TEST_F(EnvCommandTest, RunsOfItsFabricAreOnItsSwitch) {
  EXPECT_EQ(wait(shell(std::string("eval \"$(") + SOFTHCA_PROGRAM +
                       " env --fabric lab)\"; echo $SOFTHCA_DOOR; unset LD_PRELOAD; " +
                       SOFTHCA_PROGRAM + " run --fabric lab -- sh -c 'echo $SOFTHCA_DOOR'")),
            0);
  const auto both = out();
  const auto line = both.substr(0, both.find('\n') + 1);
  EXPECT_THAT(line, HasSubstr("fabric-lab"));
  EXPECT_EQ(both, line + line);
  EXPECT_TRUE(nothing_is_left());
}

TEST_F(EnvCommandTest, ItIsOnTheNetworkOfTheRunsUnlessItIsToBePrivate) {
  const auto both = [&](const std::string& options) {
    EXPECT_EQ(wait(shell(std::string("eval \"$(") + SOFTHCA_PROGRAM + " env " + options +
                         ")\"; echo $SOFTHCA_DOOR; unset LD_PRELOAD; " + SOFTHCA_PROGRAM +
                         " run -- sh -c 'echo $SOFTHCA_DOOR'")),
              0);
    const auto all = out();
    const auto line = all.substr(0, all.find('\n') + 1);
    return all == line + line;
  };
  EXPECT_TRUE(both(""));
  EXPECT_FALSE(both("--private"));
  EXPECT_TRUE(nothing_is_left());
}

// `docker exec` starts such a process: its parent is not visible.
TEST_F(EnvCommandTest, OwnerZeroIsTheFirstProcessOfTheContainer) {
  const auto pid = shell("exec " + std::string(SOFTHCA_PROGRAM) + " env --plain --owner 0");
  EXPECT_EQ(wait(pid), 0) << out();
  EXPECT_THAT(out(), HasSubstr("SOFTHCA_DOOR="));
  // Process 1 of this machine stays alive, so its holder runs until the test ends it.
  for (const auto& process : std::filesystem::directory_iterator("/proc")) {
    if (content_of(process.path() / "comm") != "softhca-env\n") continue;
    if (content_of(process.path() / "environ").find(runtime().string()) == std::string::npos) {
      continue;
    }
    ::kill(std::stoi(process.path().filename()), SIGTERM);
  }
  EXPECT_TRUE(nothing_is_left());
}

TEST_F(EnvCommandTest, PlainLinesAreNamesAndValues) {
  EXPECT_EQ(env({"--plain"}), 0);
  EXPECT_THAT(out(), AllOf(StartsWith("LD_PRELOAD=" + library_ +
                                      "\nSOFTHCA_DOOR=" + runtime().string() + "/softhca-"),
                           Not(HasSubstr("export"))));
}

// The options are those of `softhca run`.
TEST_F(EnvCommandTest, ItSaysWhichDevicesAndAddresses) {
  EXPECT_EQ(env({"--plain", "--devices", "2", "--address", "198.19.7.1,if:lo"}), 0);
  EXPECT_THAT(out(), AllOf(HasSubstr("\nSOFTHCA_ADDRESS=198.19.7.1,if:lo\n"),
                           HasSubstr("\nSOFTHCA_DEVICES=2\n")));
  EXPECT_EQ(wait(shell(std::string("eval \"$(") + SOFTHCA_PROGRAM +
                       " env --device connectx,connectx)\"; "
                       "ls $SOFTHCA_DOOR/root-$SOFTHCA_DEVICES/sys/class/infiniband")),
            0);
  EXPECT_EQ(out(), "mlx5_0\nmlx5_1\n");
  EXPECT_EQ(env({"--address", "198.19.7.1,198.19.7.2"}), 1);
  EXPECT_THAT(out(), HasSubstr("softhca: env: --address: 2 addresses, but only 1 device"));
  EXPECT_NE(env({"--address", "127.0.0.1"}), 0);
  EXPECT_THAT(out(), HasSubstr("127.0.0.1 is not the address of a host"));
}

TEST_F(EnvCommandTest, OneMoreOfTheSameShellTakesThePlaceOfTheOneBefore) {
  const auto first = std::string("eval \"$(") + SOFTHCA_PROGRAM + " env --devices 2 --address " +
                     "198.19.7.1)\"; echo $SOFTHCA_DEVICES $SOFTHCA_ADDRESS; ";
  EXPECT_EQ(wait(shell(first + eval_ + "echo ${SOFTHCA_DEVICES-one} ${SOFTHCA_ADDRESS-any}")), 0);
  EXPECT_EQ(out(), "2 198.19.7.1\none any\n");
}

TEST_F(EnvCommandTest, AControlSocketAnswersWhileTheShellLives) {
  const auto control = file("ctl").string();
  const auto pid = shell(std::string("eval \"$(") + SOFTHCA_PROGRAM + " env --control " + control +
                         ")\"; stat -c %a $SOFTHCA_CONTROL; exec sleep 100");
  EXPECT_EQ(line_of("out"), "700") << "where its processes listen";
  EXPECT_EQ(wait(start_softhca({"inspect", control}, "answer")), 0);
  EXPECT_THAT(out("answer"), StartsWith("softhca:\n  hub:\n    processes: 0\n"))
      << "no process has a device yet";
  ::kill(pid, SIGKILL);
  (void)wait(pid);
  EXPECT_TRUE(nothing_is_left());
  EXPECT_FALSE(std::filesystem::exists(control));
}

TEST_F(EnvCommandTest, AControlSocketThatCannotBeIsReportedAndNothingIsPrinted) {
  EXPECT_EQ(env({"--control", "/nowhere/ctl"}), 1);
  EXPECT_THAT(out(),
              AllOf(StartsWith("softhca: "), HasSubstr("/nowhere/ctl"), Not(HasSubstr("export"))));
  EXPECT_TRUE(nothing_is_left());
}

// The options are those of `softhca run`.
TEST_F(EnvCommandTest, FaultRulesAreThereWhileTheShellLives) {
  const auto control = file("ctl").string();
  const auto pid = shell(std::string("eval \"$(") + SOFTHCA_PROGRAM + " env --control " + control +
                         " --fault port=*,nth=3,do=lose)\"; stat -c %F $SOFTHCA_FAULTS; "
                         "exec sleep 100");
  EXPECT_EQ(line_of("out"), "regular file") << "where its processes find the rules";
  const auto fault = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"fault", control});
    const auto status = wait(start_softhca(words, "answer"));
    return std::to_string(status) + ": " + out("answer");
  };
  EXPECT_EQ(fault({"list"}), "0: n1: port=*,nth=3,do=lose: matched 0, fired 0\n");
  EXPECT_EQ(fault({"add", "port=mlx5_0,do=link-down"}),
            "0: n2: port=mlx5_0,do=link-down: matched 0, fired 0\n");
  EXPECT_THAT(fault({"add", "port=mlx5_1,do=lose"}), HasSubstr("there is no port 'mlx5_1'"));
  EXPECT_EQ(fault({"remove", "n1"}), "0: ");
  EXPECT_EQ(fault({"list"}), "0: n2: port=mlx5_0,do=link-down: matched 0, fired 0\n");
  ::kill(pid, SIGKILL);
  (void)wait(pid);
  EXPECT_TRUE(nothing_is_left());
}

TEST_F(EnvCommandTest, AFaultRuleThatIsWrongIsReportedAndNothingIsPrinted) {
  EXPECT_EQ(env({"--fault", "port=*,do=loose"}), 1);
  EXPECT_THAT(out(),
              AllOf(StartsWith("softhca: --fault port=*,do=loose: "), Not(HasSubstr("export"))));
  EXPECT_EQ(env({"--fault", "@/nowhere/rules"}), 1);
  EXPECT_THAT(out(), HasSubstr("/nowhere/rules"));
  EXPECT_TRUE(nothing_is_left());
}

TEST_F(EnvCommandTest, ValuesReachTheShellToTheLetter) {
  // Characters that the shell would interpret.
  const auto odd = (runtime() / "it's $HOME; `x`").string();
  std::filesystem::create_directory(odd);
  ::chmod(odd.c_str(), 0700);
  ::setenv("XDG_RUNTIME_DIR", odd.c_str(), 1);
  EXPECT_EQ(wait(shell(eval_ + "case $SOFTHCA_DOOR in \"$XDG_RUNTIME_DIR\"/*) exit 3;; esac")), 3);
}

TEST_F(EnvCommandTest, AnOwnerThatIsNotThereIsRefused) {
  EXPECT_EQ(env({"--owner", "99999999"}), 1);
  EXPECT_THAT(out(), HasSubstr("--owner 99999999"));
  EXPECT_TRUE(nothing_is_left());
}

}  // namespace
}  // namespace softhca::hub
