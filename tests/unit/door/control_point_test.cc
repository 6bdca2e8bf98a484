// The socket through which a run queries its processes.
#include "door/control/control_point.h"

#include <gtest/gtest.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <thread>

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

// Two processes of two PID namespaces may share a name and a number.
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

/// A control point, and a client that has connected and stays silent.
class SlowAsker : public ::testing::Test {
 protected:
  SlowAsker() {
    auto name = (std::filesystem::temp_directory_path() / "softhca-XXXXXX").string();
    directory_ = ::mkdtemp(name.data());
    point_.emplace(*ControlPoint::create(directory_));
    const auto path = std::filesystem::directory_iterator(directory_)->path();
    asker_ = *vfio_user::connect_unix(path, "test");
  }
  ~SlowAsker() override { std::filesystem::remove_all(directory_); }
  /// Each reading advances the clock by a tenth of the patience.
  std::function<util::Time()> clock() {
    return [this] { return now_ += util::Duration(ControlPoint::kPatience) / 10; };
  }

  std::filesystem::path directory_;
  std::optional<ControlPoint> point_;
  vfio_user::UniqueFd asker_;
  util::Time now_{};
};

TEST_F(SlowAsker, AQuestionThatComesByteByByteIsLeft) {
  int sent = 0;
  std::thread asks([&] {
    const auto is_read = [this] {
      int waiting = 0;
      return ::ioctl(asker_.get(), SIOCOUTQ, &waiting) == 0 && waiting == 0;
    };
    while (::send(asker_.get(), "i", 1, MSG_NOSIGNAL) == 1) {
      ++sent;
      while (!is_read()) std::this_thread::yield();
    }
  });
  point_->serve([](const auto&) { return std::string(); }, clock());
  asks.join();
  EXPECT_LE(sent, 12);
}

TEST_F(SlowAsker, AnAnswerThatIsTakenPieceByPieceIsLeft) {
  constexpr std::string_view kQuestion = "inspect 0 0 1\n";
  ASSERT_EQ(::send(asker_.get(), kQuestion.data(), kQuestion.size(), 0), ssize_t{kQuestion.size()});
  std::size_t taken = 0;
  std::thread takes([&] {
    std::array<char, 4096> piece;
    for (ssize_t size; (size = ::recv(asker_.get(), piece.data(), piece.size(), 0)) > 0;) {
      taken += static_cast<std::size_t>(size);
    }
  });
  constexpr std::size_t kLong = std::size_t{64} << 20;
  point_->serve([](const auto&) { return std::string(kLong, 'x'); }, clock());
  takes.join();
  EXPECT_LT(taken, kLong / 2);
}

}  // namespace
}  // namespace softhca::door
