#include "server/isolate/channel.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <cstring>
#include <optional>
#include <vector>

#include "os/slow_close.h"
#include "vfio_user/served_function.h"

namespace softhca::server {
namespace {

using os::UniqueFd;
using namespace std::chrono_literals;

/// A channel, and the bare socket at its other end.
class ChannelTest : public ::testing::Test {
 protected:
  ChannelTest() {
    int fds[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
    other_ = UniqueFd(fds[1]);
    channel_.emplace(*loop_, UniqueFd(fds[0]), 1000, janitor_,
                     Channel::Handlers{[this](std::uint32_t number, std::string_view text) {
                                         got_.emplace_back(number, text);
                                       },
                                       [this](bool nonsense) {
                                         ++ends_;
                                         nonsense_ = nonsense;
                                       }});
    EXPECT_TRUE(channel_->start());
  }
  void run() {
    while (loop_->run_once(util::Time{}) != 0) {
    }
  }
  void say(std::string_view bytes) {
    ASSERT_EQ(::send(other_.get(), bytes.data(), bytes.size(), 0),
              static_cast<ssize_t>(bytes.size()));
    run();
  }
  static std::string message(std::uint32_t length, std::uint32_t number, std::string_view text) {
    std::string bytes(8, '\0');
    std::memcpy(&bytes[0], &length, 4);
    std::memcpy(&bytes[4], &number, 4);
    return bytes.append(text);
  }

  std::unique_ptr<os::EventLoop> loop_ = os::EventLoop::create().value();
  UniqueFd other_;
  os::Janitor janitor_;
  std::optional<Channel> channel_;
  std::vector<std::pair<std::uint32_t, std::string>> got_;
  int ends_ = 0;
  bool nonsense_ = false;
};

TEST_F(ChannelTest, MessagesComeWholeInWhateverPiecesTheyWereSent) {
  const auto bytes = message(5, 7, "hello") + message(0, 8, "") + message(3, 9, "you");
  for (const char byte : bytes) say({&byte, 1});
  const std::vector<std::pair<std::uint32_t, std::string>> all = {
      {7, "hello"}, {8, ""}, {9, "you"}};
  EXPECT_EQ(got_, all);
  got_.clear();
  say(bytes);
  EXPECT_EQ(got_, all);
  EXPECT_EQ(ends_, 0);
}

TEST_F(ChannelTest, AnUnexpectedDescriptorDelaysNoOther) {
  test::SlowClose slow(30);
  const auto bytes = message(5, 7, "hello");
  test::send_with_fds(other_.get(), std::as_bytes(std::span(bytes)), std::array{slow.fd.get()});
  slow.fd.reset();
  run();
  EXPECT_EQ(got_.size(), 1u);
  EXPECT_EQ(janitor_.pending_descriptors(), 1u) << "it is still being closed";
  slow.release();
}

TEST_F(ChannelTest, AnUnreadDescriptorDelaysNoOther) {
  test::SlowClose slow(30);
  const auto bytes = message(5, 7, "hello");
  test::send_with_fds(other_.get(), std::as_bytes(std::span(bytes)), std::array{slow.fd.get()});
  slow.fd.reset();
  channel_.reset();
  EXPECT_EQ(janitor_.pending_descriptors(), 1u) << "the socket is still being closed";
  slow.release();
}

TEST_F(ChannelTest, ALengthAboveTheLimitEndsIt) {
  say(message(1001, 1, "x"));
  EXPECT_EQ(ends_, 1);
  EXPECT_TRUE(nonsense_);
  EXPECT_TRUE(got_.empty());
  EXPECT_FALSE(channel_->send(1, "anybody there?"));
  EXPECT_EQ(ends_, 1);
}

TEST_F(ChannelTest, WhenTheOtherSideGoesItEnds) {
  other_.reset();
  run();
  EXPECT_EQ(ends_, 1);
  EXPECT_FALSE(nonsense_);
}

TEST_F(ChannelTest, AMessageThatTheSocketTakesInPartIsCompletedLater) {
  const std::string text(3 << 20, 'x');
  ASSERT_TRUE(channel_->send(3, text));
  std::string all;
  for (int i = 0; i < 10000 && all.size() < text.size() + 8; ++i) {
    char piece[65536];
    const auto size = ::recv(other_.get(), piece, sizeof piece, MSG_DONTWAIT);
    if (size > 0) all.append(piece, static_cast<std::size_t>(size));
    run();
  }
  EXPECT_EQ(all, message(static_cast<std::uint32_t>(text.size()), 3, text));
}

TEST_F(ChannelTest, AClientThatReadsNothingIsSentBoundedOutput) {
  const std::string text(Channel::kAnswerMax / 2, 'x');
  EXPECT_TRUE(channel_->send(1, text));
  EXPECT_TRUE(channel_->send(2, text));
  EXPECT_TRUE(channel_->send(3, text));
  EXPECT_FALSE(channel_->send(4, text));
}

}  // namespace
}  // namespace softhca::server
