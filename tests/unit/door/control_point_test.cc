// The socket by which a run asks its processes.
#include "door/control/control_point.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "vfio_user/unix_socket.h"

namespace softhca::door {
namespace {

TEST(ControlPoint, WhatIsAskedIsHeard) {
  ControlPoint::Question question{.function = "mlx5_1", .show = {}};
  question.show.json = true;
  question.show.from = 0xffffffff;
  question.show.count = 3;
  const auto heard = ControlPoint::parse(ControlPoint::line_of(question));
  ASSERT_TRUE(heard);
  EXPECT_EQ(heard->function, "mlx5_1");
  EXPECT_TRUE(heard->show.json);
  EXPECT_EQ(heard->show.from, 0xffffffffu);
  EXPECT_EQ(heard->show.count, 3u);
  EXPECT_EQ(ControlPoint::parse("inspect 0 0 16")->function, "") << "all";
  for (const char* wrong : {"", "inspect", "inspect 0 0", "inspect 2 0 1", "inspect 0 0 0",
                            "inspect 0 0 257", "fault 0 0 1", "inspect x 0 1"}) {
    EXPECT_FALSE(ControlPoint::parse(wrong)) << wrong;
  }
}

// As processes of two PID namespaces may have.
TEST(ControlPoint, TwoOfOneNameAndNumberAreBothFound) {
  auto name = (std::filesystem::temp_directory_path() / "softhca-XXXXXX").string();
  const std::filesystem::path directory = ::mkdtemp(name.data());
  const auto one = ControlPoint::create(directory), two = ControlPoint::create(directory);
  EXPECT_TRUE(one && two);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory), {}), 2);
  std::filesystem::remove_all(directory);
}

TEST(ControlPoint, EachQuestionHasOneAnswer) {
  auto name = (std::filesystem::temp_directory_path() / "softhca-XXXXXX").string();
  const std::filesystem::path directory = ::mkdtemp(name.data());
  auto point = ControlPoint::create(directory);
  ASSERT_TRUE(point) << point.error().message;
  const auto own = std::string(::program_invocation_short_name).substr(0, 15);
  const auto path = (directory / (own + "." + std::to_string(::getpid()))).string();
  const auto ask = [&](const std::string& line) {
    const auto socket = vfio_user::connect_unix(path, "test");
    EXPECT_TRUE(socket);
    EXPECT_EQ(::send(socket->get(), line.data(), line.size(), 0),
              static_cast<ssize_t>(line.size()));
    point->serve([](const ControlPoint::Question& question) { return "of " + question.function; });
    std::string answer(64, '\0');
    const auto size = ::recv(socket->get(), answer.data(), answer.size(), 0);
    answer.resize(size < 0 ? 0 : static_cast<std::size_t>(size));
    return answer;
  };
  EXPECT_EQ(ask("inspect 0 0 1 mlx5_0\n"), "of mlx5_0");
  EXPECT_EQ(ask("what\n"), "error: no such question\n");
  point->serve([](const auto&) -> std::string {
    ADD_FAILURE() << "nobody asks";
    return {};
  });
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace softhca::door
