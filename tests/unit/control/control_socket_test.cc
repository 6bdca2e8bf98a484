// The control socket, with clients of all kinds.
#include "control/control_socket.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <thread>
#include <vector>

#include "os/slow_close.h"
#include "os/unix_socket.h"
#include "vfio_user/served_function.h"

namespace softhca::control {
namespace {

using os::UniqueFd;

/// A server in its own thread. It answers a request by repeating it.
class ControlSocketTest : public ::testing::Test {
 protected:
  ControlSocketTest() {
    auto name = (std::filesystem::temp_directory_path() / "softhca-XXXXXX").string();
    directory_ = ::mkdtemp(name.data());
    path_ = directory_ / "control";
    socket_ =
        *ControlSocket::listen(*loop_, path_, [this](std::string_view request, const auto& reply) {
          std::string answer;
          if (slow_) ::usleep(20'000);
          for (std::size_t i = 0; i < repeats_; ++i) answer += request;
          reply(std::move(answer));
        });
    thread_ = std::thread([this] {
      while (!loop_->stopped()) loop_->run_once(util::kNever);
    });
  }
  ~ControlSocketTest() override {
    loop_->stop();
    thread_.join();
    socket_.reset();
    EXPECT_FALSE(std::filesystem::exists(path_));
    std::filesystem::remove_all(directory_);
  }
  UniqueFd connect() { return *os::connect_unix(path_, "test"); }
  static bool send(const UniqueFd& fd, std::string_view text) {
    return ::send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(text.size());
  }
  /// Reads until the server closes the connection. Each piece must come within 20 seconds.
  static std::string receive_all(const UniqueFd& fd) {
    constexpr timeval kPatience{.tv_sec = 20, .tv_usec = 0};
    ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof kPatience);
    std::string all;
    char buffer[4096];
    errno = 0;
    for (ssize_t size; (size = ::recv(fd.get(), buffer, sizeof buffer, 0)) > 0;) {
      all.append(buffer, static_cast<std::size_t>(size));
    }
    EXPECT_NE(errno, EAGAIN) << "the connection does not end";
    return all;
  }
  void expect_alive() {
    const auto answer = ask_control(path_, "ping");
    ASSERT_TRUE(answer) << answer.error().message;
    EXPECT_EQ(*answer, "ping");
  }

  std::filesystem::path directory_;
  std::string path_;
  std::atomic<std::size_t> repeats_ = 1;
  std::atomic<bool> slow_ = false;
  std::unique_ptr<os::EventLoop> loop_ = *os::EventLoop::create();
  test::HeldLoop held_{*loop_};
  std::unique_ptr<ControlSocket> socket_;
  std::thread thread_;
};

TEST_F(ControlSocketTest, AnUnexpectedDescriptorDelaysNoOther) {
  test::SlowClose slow(30);
  const auto hostile = connect();
  held_.hold([&] {
    test::send_with_fds(hostile.get(), std::as_bytes(std::span("x", 1)), std::array{slow.fd.get()});
    slow.fd.reset();
  });
  expect_alive();  // within seconds
  slow.release();
}

TEST_F(ControlSocketTest, ASignalWhileAnAnswerIsAwaitedIsNoEnd) {
  struct sigaction quiet{}, before{};
  quiet.sa_handler = [](int) {};
  ASSERT_EQ(::sigaction(SIGUSR1, &quiet, &before), 0);  // without SA_RESTART
  std::atomic<bool> asked = false;
  slow_ = true;
  std::thread asker([this, &asked] {
    const auto answer = ask_control(path_, "ping");
    EXPECT_TRUE(answer) << answer.error().message;
    asked = true;
  });
  while (!asked) {
    ::pthread_kill(asker.native_handle(), SIGUSR1);
    ::usleep(500);
  }
  asker.join();
  ::sigaction(SIGUSR1, &before, nullptr);
}

TEST_F(ControlSocketTest, ALineIsAnsweredAndTheConnectionEnds) {
  expect_alive();
  expect_alive();
}

TEST_F(ControlSocketTest, OnlyItsUserMayOpenIt) {
  struct stat status;
  ASSERT_EQ(::stat(path_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
}

TEST_F(ControlSocketTest, ALargeAnswerReachesASlowReader) {
  repeats_ = 1 << 20;
  const auto fd = connect();
  ASSERT_TRUE(send(fd, "abcd\n"));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(receive_all(fd).size(), 4u << 20);
}

TEST_F(ControlSocketTest, ARequestMayComeInPieces) {
  const auto fd = connect();
  for (const auto* piece : {"pi", "n", "g\nmore"}) {
    ASSERT_TRUE(send(fd, piece));
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ(receive_all(fd), "ping");
}

TEST_F(ControlSocketTest, ARequestWithoutEndIsRefused) {
  const auto fd = connect();
  ASSERT_TRUE(send(fd, std::string(ControlSocket::kRequestMax + 1, 'x')));
  EXPECT_EQ(receive_all(fd), "error: the request is too long\n");
  expect_alive();
}

TEST_F(ControlSocketTest, AClientThatLeavesEarlyHarmsNoOther) {
  connect();
  {
    ASSERT_TRUE(send(connect(), "half a requ"));
  }
  repeats_ = 1 << 20;
  {
    ASSERT_TRUE(send(connect(), "not read\n"));
  }
  while (!ask_control(path_, "")) {
  }
  repeats_ = 1;
  expect_alive();
}

TEST_F(ControlSocketTest, SilentClientsDoNotKeepOthersOut) {
  std::vector<UniqueFd> silent;
  for (std::size_t i = 0; i < 3 * ControlSocket::kConnectionsMax; ++i) silent.push_back(connect());
  expect_alive();
  EXPECT_EQ(receive_all(silent.front()), "") << "the oldest had to go";
}

TEST_F(ControlSocketTest, ASocketInUseIsNotTakenOver) {
  EXPECT_FALSE(ControlSocket::listen(*loop_, path_, {}));
  expect_alive();
}

TEST(ControlClientTest, AServerThatIsNotThereIsReported) {
  const auto answer = ask_control("/nonexistent/control", "ping");
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().message,
            "control socket '/nonexistent/control': connect: No such file or directory");
}

TEST_F(ControlSocketTest, APathThatIsTakenIsExplained) {
  const auto listening = os::bind_unix(path_, "test socket");
  ASSERT_FALSE(listening);
  EXPECT_EQ(listening.error().message, "test socket '" + path_ +
                                           "': another process listens there (Address already in "
                                           "use)");
  const auto directory = os::bind_unix(directory_, "test socket");
  ASSERT_FALSE(directory);
  EXPECT_TRUE(directory.error().message.ends_with(": a file that is no socket has this name"))
      << directory.error().message;
}

}  // namespace
}  // namespace softhca::control
