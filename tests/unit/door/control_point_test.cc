// The socket through which a run queries its processes.
#include "door/control/control_point.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "os/unix_socket.h"

namespace softhca::door {
namespace {

TEST(ControlPoint, AQuestionIsParsedAsItWasWritten) {
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
    const auto socket = os::connect_unix(path, "test");
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
    ADD_FAILURE() << "a question without an asker";
    return {};
  });
  std::filesystem::remove_all(directory);
}

/// A control point, and an asker that has connected and stays silent.
class SlowAsker : public ::testing::Test {
 protected:
  SlowAsker() {
    auto name = (std::filesystem::temp_directory_path() / "softhca-XXXXXX").string();
    directory_ = ::mkdtemp(name.data());
    point_.emplace(*ControlPoint::create(directory_));
    asker_ = connect();
  }
  ~SlowAsker() override { std::filesystem::remove_all(directory_); }

  os::UniqueFd connect() const {
    const auto path = std::filesystem::directory_iterator(directory_)->path();
    return *os::connect_unix(path, "test");
  }
  /// False: the control point has closed the connection.
  bool send(std::string_view text) const {
    return ::send(asker_.get(), text.data(), text.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(text.size());
  }
  /// Serves, while `pass` of the patience passes.
  void serve(util::Duration pass = {}) {
    now_ += pass;
    point_->serve([this](const auto&) { return std::string(answer_, 'x'); },
                  [this] { return now_; });
  }
  /// Reads a piece of the answer. 0: the answer is complete; below 0: no piece has come yet.
  static ssize_t take(const os::UniqueFd& asker) {
    std::array<char, 4096> piece;
    return ::recv(asker.get(), piece.data(), piece.size(), MSG_DONTWAIT);
  }
  static bool is_readable(int fd) {
    pollfd at{.fd = fd, .events = POLLIN, .revents = 0};
    return ::poll(&at, 1, 0) == 1;
  }

  static constexpr std::string_view kQuestion = "inspect 0 0 1\n";
  static constexpr util::Duration kTenth = util::Duration(ControlPoint::kPatience) / 10;

  std::filesystem::path directory_;
  std::optional<ControlPoint> point_;
  os::UniqueFd asker_;
  util::Time now_{};
  std::size_t answer_ = 1;  ///< its size
};

TEST_F(SlowAsker, AQuestionThatComesByteByByteIsLeft) {
  int sent = 0;
  for (; send("i") && sent != 100; ++sent) serve(kTenth);
  EXPECT_GE(sent, 10);
  EXPECT_LE(sent, 12);
}

TEST_F(SlowAsker, AnAnswerThatIsTakenPieceByPieceIsLeft) {
  answer_ = std::size_t{64} << 20;
  ASSERT_TRUE(send(kQuestion));
  std::size_t pieces = 0;
  serve();
  for (; take(asker_) > 0; ++pieces) serve(kTenth);
  EXPECT_LT(pieces, answer_ / 4096 / 2);
}

// If the engine's thread waited for an asker, no device of a sleeping program would work.
TEST_F(SlowAsker, AQuestionIsNotWaitedFor) {
  serve();
  for (const char letter : kQuestion) {
    EXPECT_EQ(take(asker_), -1);
    ASSERT_TRUE(send({&letter, 1}));
    serve();
  }
  EXPECT_EQ(take(asker_), 1);
  EXPECT_EQ(take(asker_), 0);
}

TEST_F(SlowAsker, RoomForAnAnswerIsNotWaitedFor) {
  answer_ = std::size_t{8} << 20;
  ASSERT_TRUE(send(kQuestion));
  serve();
  EXPECT_EQ(point_->events(), POLLOUT);
  std::size_t taken = 0;
  for (ssize_t size; (size = take(asker_)) != 0; serve()) {
    ASSERT_GT(size, 0);
    taken += static_cast<std::size_t>(size);
  }
  EXPECT_EQ(taken, answer_);
  EXPECT_EQ(point_->events(), POLLIN);
}

TEST_F(SlowAsker, TheNextOneIsServedWhenTheTimeOfTheFirstIsOver) {
  serve();
  const auto silent = std::exchange(asker_, connect());
  ASSERT_TRUE(send(kQuestion));
  EXPECT_FALSE(is_readable(point_->fd())) << "the engine's thread would not sleep";
  EXPECT_FALSE(point_->is_overdue(now_));
  serve();
  EXPECT_EQ(take(asker_), -1);
  EXPECT_TRUE(point_->is_overdue(now_ + ControlPoint::kPatience));
  serve(ControlPoint::kPatience);
  EXPECT_EQ(take(silent), 0);
  EXPECT_EQ(take(asker_), 1);
}

}  // namespace
}  // namespace softhca::door
