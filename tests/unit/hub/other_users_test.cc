// `softhca run` next to another user of the machine, who plants files where it will look.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>

#include "hub/join.h"
#include "os/unix_socket.h"
#include "run_command.h"

namespace softhca::hub {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;

/// UIDs that no machine uses, so they own nothing in /run/user.
constexpr uid_t kVictim = 61'234, kAttacker = 61'235;

/// Both users share $TMPDIR, which is world-writable and sticky like /tmp.
class OtherUsersTest : public RunCommandTest {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "only root can be two users";
    ::chmod(directory_.c_str(), 0755);
    shared_ = (directory_ / "t").string();
    std::filesystem::create_directory(shared_);
    ::chmod(shared_.c_str(), 01777);
    ::unsetenv("XDG_RUNTIME_DIR");
    ::setenv("TMPDIR", shared_.c_str(), 1);
  }
  void TearDown() override { ::unsetenv("TMPDIR"); }

  /// A process of `user` that does `what` and then waits to be killed. Returns once `what` is done.
  template <class What>
  pid_t as(uid_t user, What what) const {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    const auto pid = ::fork();
    if (pid == 0) {
      if (::setgid(user) != 0 || ::setuid(user) != 0) ::_exit(99);
      what();
      (void)!::write(ends[1], "!", 1);
      ::pause();
      ::_exit(0);
    }
    char done;
    EXPECT_EQ(::read(ends[0], &done, 1), 1);
    ::close(ends[0]);
    ::close(ends[1]);
    return pid;
  }
  /// The exit status of `softhca` with `words`, run as the victim. `said_` gets its output.
  int victim(const std::vector<std::string>& words) {
    const auto out = shared_ + "/victims-out";
    const auto status = wait(start_victim(words, out));
    said_ = content_of(out);
    return status;
  }
  static pid_t start_victim(const std::vector<std::string>& words, const std::string& out) {
    const auto pid = ::fork();
    if (pid == 0) {
      if (::setgid(kVictim) != 0 || ::setuid(kVictim) != 0) ::_exit(99);
      const int to = ::open(out.c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0600);
      ::dup2(to, STDOUT_FILENO);
      ::dup2(to, STDERR_FILENO);
      std::vector<std::string> all = {SOFTHCA_PROGRAM};
      all.insert(all.end(), words.begin(), words.end());
      std::vector<char*> arguments;
      for (auto& word : all) arguments.push_back(word.data());
      arguments.push_back(nullptr);
      ::execv(arguments[0], arguments.data());
      ::_exit(99);
    }
    return pid;
  }
  std::string fabric(const std::string& name) const {
    return shared_ + "/softhca-" + std::to_string(kVictim) + "-fabric-" + name;
  }
  static void kill(pid_t pid) {
    ::kill(pid, SIGKILL);
    (void)wait(pid);
  }

  std::string shared_, said_;
};

/// Any user may connect.
void listen_at(const std::string& path) {
  static std::vector<int> listeners;  // open until the process ends
  const int listener = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), std::min(path.size(), sizeof address.sun_path - 1));
  if (::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) ::_exit(98);
  ::chmod(path.c_str(), 0777);
  ::listen(listener, 10);
  listeners.push_back(listener);
}

TEST_F(OtherUsersTest, AFabricThatAnotherUserHasPreparedIsNotJoined) {
  const auto directory = fabric("lab");
  const auto attacker = as(kAttacker, [&] {
    ::umask(0);
    ::mkdir(directory.c_str(), 0777);
    listen_at(directory + "/runs");
    listen_at(directory + "/hub");
  });
  EXPECT_EQ(victim({"run", "--fabric", "lab", "--", "true"}), 1);
  EXPECT_THAT(said_, AllOf(HasSubstr("belongs to uid 61235"), HasSubstr("XDG_RUNTIME_DIR")));
  EXPECT_EQ(victim({"env", "--fabric", "lab"}), 1);
  EXPECT_EQ(victim({"serve", "--device", "connectx", "--socket", shared_ + "/hca", "--port",
                    "fabric:lab"}),
            1);
  EXPECT_EQ(victim({"run", "--fabric", "other", "--", "sh", "-c", "echo $SOFTHCA_DOOR"}), 0);
  EXPECT_EQ(said_, fabric("other") + "\n");
  kill(attacker);
}

TEST_F(OtherUsersTest, ADirectoryBehindALinkIsNotJoined) {
  // The network is the victim's own and alive: programs of two networks must stay apart.
  const auto lives =
      start_victim({"run", "--fabric", "other", "--", "sleep", "100"}, shared_ + "/other-out");
  ASSERT_TRUE(comes([&] { return std::filesystem::exists(fabric("other") + "/runs"); }));
  kill(as(kAttacker, [&] { (void)!::symlink(fabric("other").c_str(), fabric("lab").c_str()); }));
  EXPECT_EQ(victim({"run", "--fabric", "lab", "--", "true"}), 1);
  EXPECT_THAT(said_, HasSubstr("Not a directory"));
  EXPECT_EQ(victim({"run", "--fabric", "other", "--", "true"}), 0);
  ::kill(lives, SIGTERM);
  (void)wait(lives);
}

TEST_F(OtherUsersTest, AHubOfAnotherUserIsNotJoined) {
  const auto path = shared_ + "/hub";
  const auto attacker = as(kAttacker, [&] { listen_at(path); });
  const auto joined = join(path);
  ASSERT_FALSE(joined);
  EXPECT_THAT(joined.error().message, HasSubstr("belongs to uid 61235"));
  kill(attacker);
}

TEST_F(OtherUsersTest, ADirectoryOfAnotherUserIsNotUsed) {
  kill(as(kAttacker, [&] { ::mkdir((shared_ + "/r").c_str(), 0755); }));
  ::setenv("XDG_RUNTIME_DIR", (shared_ + "/r").c_str(), 1);
  EXPECT_EQ(victim({"run", "--fabric", "lab", "--", "sh", "-c", "echo $SOFTHCA_DOOR"}), 0);
  EXPECT_THAT(said_, AllOf(HasSubstr("/r' belongs to uid 61235; "), HasSubstr(fabric("lab"))));
}

}  // namespace
}  // namespace softhca::hub
