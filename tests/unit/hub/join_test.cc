// Joining a hub, or something else that listens.
#include "hub/join.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "hub/hello.h"
#include "os/unix_socket.h"

namespace softhca::hub {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

TEST(JoinTest, JoiningWithoutAListenerIsAnError) {
  const auto joined = join("/nowhere/hub");
  ASSERT_FALSE(joined);
  EXPECT_THAT(joined.error().message, HasSubstr("/nowhere/hub"));
}

// A killed hub leaves its socket file.
TEST(JoinTest, AHubHasGoneIfNothingListensAtItsSocket) {
  auto name = (std::filesystem::temp_directory_path() / "softhca-XXXXXX").string();
  const std::filesystem::path directory = ::mkdtemp(name.data());
  const auto path = (directory / "hub").string();
  EXPECT_FALSE(has_gone(path)) << "there was none";
  {
    const auto listener = *os::bind_unix(path, "test");
    ASSERT_EQ(::listen(listener.get(), 1), 0);
    EXPECT_FALSE(has_gone(path));
    pollfd waiting{.fd = listener.get(), .events = POLLIN, .revents = 0};
    EXPECT_EQ(::poll(&waiting, 1, 0), 0) << "the hub is asked";
  }
  EXPECT_TRUE(has_gone(path));
  std::filesystem::remove_all(directory);
  EXPECT_FALSE(has_gone(path));
  EXPECT_FALSE(has_gone(std::string(200, 'x'))) << "no socket has such a name";
}

/// Joins a fake hub that answers `words`.
util::Result<Joined> join_fake_hub_that_says(const std::string& words) {
  auto name = (std::filesystem::temp_directory_path() / "softhca-XXXXXX").string();
  const std::filesystem::path directory = ::mkdtemp(name.data());
  const auto path = (directory / "hub").string();
  const auto listener = *os::bind_unix(path, "test");
  EXPECT_EQ(::listen(listener.get(), 1), 0);
  std::thread other([&] {
    pollfd waiting{.fd = listener.get(), .events = POLLIN, .revents = 0};
    ::poll(&waiting, 1, 20'000);
    const UniqueFd socket(::accept(listener.get(), nullptr, nullptr));
    EXPECT_EQ(::send(socket.get(), words.data(), words.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(words.size()));
  });
  auto joined = join(path);
  other.join();
  std::filesystem::remove_all(directory);
  return joined;
}

// A hub stopped by SIGSTOP, for example, does not accept.
TEST(JoinTest, AHubThatDoesNotAcceptIsNotWaitedForWithoutEnd) {
  auto name = (std::filesystem::temp_directory_path() / "softhca-XXXXXX").string();
  const std::filesystem::path directory = ::mkdtemp(name.data());
  const auto path = (directory / "hub").string();
  const UniqueFd listener(*os::bind_unix(path, "test"));
  ASSERT_EQ(::listen(listener.get(), 0), 0);
  std::vector<UniqueFd> waiting;
  while (auto one = os::connect_own(path, "hub", 1s)) waiting.push_back(*std::move(one));
  const auto refused = os::connect_own(path, "hub", 1s);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("does not answer"));
  std::filesystem::remove_all(directory);
}

TEST(JoinTest, JoiningAListenerThatIsNoHubIsAnError) {
  EXPECT_FALSE(join_fake_hub_that_says(""));
  EXPECT_FALSE(join_fake_hub_that_says("short"));
  EXPECT_FALSE(join_fake_hub_that_says(std::string(24, 'x')));
  EXPECT_FALSE(join_fake_hub_that_says("achahub0" + std::string(16, '\0')));
}

TEST(JoinTest, AHelloWithoutDescriptorsIsAnError) {
  const auto joined = join_fake_hub_that_says("hcahub05" + std::string(16, '\0'));
  ASSERT_FALSE(joined);
  EXPECT_THAT(joined.error().message, HasSubstr("descriptors"));
}

}  // namespace
}  // namespace softhca::hub
