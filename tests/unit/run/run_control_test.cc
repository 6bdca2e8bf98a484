// The control socket of a run whose processes are hostile.
#include "run/run_control.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>

#include <string>
#include <thread>

#include "os/unix_socket.h"
#include "vfio_user/served_function.h"

namespace softhca::run {
namespace {

using os::UniqueFd;

TEST(RunControl, AnAnswerWithoutEndIsLeftOut) {
  const test::TemporaryDirectory directory;
  ASSERT_EQ(::setenv("XDG_RUNTIME_DIR", (directory / "").c_str(), 1), 0);
  const auto path = directory / "control";
  const auto control = RunControl::create(path).value();
  const auto listener = os::bind_unix(control->directory() + "/evil\x1b.7", "test").value();
  ASSERT_EQ(::listen(listener.get(), 1), 0);
  // Sends until the run hangs up.
  std::thread hostile([&listener] {
    pollfd asked{.fd = listener.get(), .events = POLLIN, .revents = 0};
    EXPECT_EQ(::poll(&asked, 1, -1), 1);
    const UniqueFd socket(::accept(listener.get(), nullptr, nullptr));
    const std::string answer = "ok\n" + std::string(65536, 'x');
    while (::send(socket.get(), answer.data(), answer.size(), MSG_NOSIGNAL) > 0) {
    }
  });
  const auto answer = control::ask_control(path, "inspect");
  hostile.join();
  ::unsetenv("XDG_RUNTIME_DIR");
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_EQ(*answer,
            "ok\nsofthca:\n  evil?.7:\n    error: left out: more than 1 MiB, or 64 MiB of all\n");
}

// The exit status of inspect is that of the answer's first line.
TEST(RunControl, AFunctionThatNoProcessHasIsAnError) {
  const test::TemporaryDirectory directory;
  ASSERT_EQ(::setenv("XDG_RUNTIME_DIR", (directory / "").c_str(), 1), 0);
  const auto path = directory / "control";
  const auto control = RunControl::create(path).value();
  const auto listener = os::bind_unix(control->directory() + "/program.7", "test").value();
  ASSERT_EQ(::listen(listener.get(), 1), 0);
  std::thread program([&listener] {
    pollfd asked{.fd = listener.get(), .events = POLLIN, .revents = 0};
    EXPECT_EQ(::poll(&asked, 1, -1), 1);
    const UniqueFd socket(::accept(listener.get(), nullptr, nullptr));
    const std::string answer = "error: there is no function 'mlx5_9'\n";
    EXPECT_GT(::send(socket.get(), answer.data(), answer.size(), MSG_NOSIGNAL), 0);
  });
  const auto answer = control::ask_control(path, "inspect mlx5_9");
  program.join();
  ::unsetenv("XDG_RUNTIME_DIR");
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_TRUE(answer->starts_with("error: no process of the run shows a function 'mlx5_9'"))
      << *answer;
}

TEST(RunControl, ARunWithoutProcessesHasNoFunction) {
  const test::TemporaryDirectory directory;
  ASSERT_EQ(::setenv("XDG_RUNTIME_DIR", (directory / "").c_str(), 1), 0);
  const auto path = directory / "control";
  const auto control = RunControl::create(path).value();
  for (const std::string name : {"mlx5_9", "trunk"}) {
    const auto answer = control::ask_control(path, "inspect " + name);
    ASSERT_TRUE(answer) << answer.error().message;
    EXPECT_TRUE(answer->starts_with("error: no process of the run shows a function '" + name + "'"))
        << *answer;
  }
  ::unsetenv("XDG_RUNTIME_DIR");
}

}  // namespace
}  // namespace softhca::run
