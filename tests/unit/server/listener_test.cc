#include "server/isolate/listener.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <optional>
#include <thread>

namespace softhca::server {
namespace {

class ListenerTest : public ::testing::Test {
 protected:
  ListenerTest() {
    auto name = (std::filesystem::temp_directory_path() / "softhca-XXXXXX").string();
    directory_ = ::mkdtemp(name.data());
    path_ = directory_ / "socket";
    listener_.emplace(*Listener::listen(path_, kAccess));
  }
  ~ListenerTest() override {
    listener_.reset();
    EXPECT_FALSE(std::filesystem::exists(path_));
    std::filesystem::remove_all(directory_);
  }
  bool serves() const {
    const auto client = os::connect_unix(path_, "test");
    const os::UniqueFd taken(::accept(listener_->fd(), nullptr, nullptr));
    return client && taken;
  }

  static constexpr os::SocketAccess kAccess{
      .mode = 0640, .group = {}, .patience = std::chrono::seconds(20)};
  std::filesystem::path directory_;
  std::string path_;
  std::optional<Listener> listener_;
};

TEST_F(ListenerTest, ListensWithItsPermissions) {
  EXPECT_TRUE(serves());
  struct stat status;
  ASSERT_EQ(::stat(path_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0640u);
}

// The other listener stands for a process of a killed server that has not yet noticed.
TEST_F(ListenerTest, AListenerThatIsAboutToCloseIsWaitedFor) {
  const std::string path = directory_ / "taken";
  auto other = *os::bind_unix(path, "test");
  ASSERT_EQ(::listen(other.get(), 1), 0);
  std::thread goes([&other] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    other.reset();
  });
  EXPECT_TRUE(Listener::listen(path, kAccess));
  goes.join();
}

TEST_F(ListenerTest, AListenerThatStaysIsInUseAndRenewDoesNotWaitForIt) {
  EXPECT_FALSE(Listener::listen(path_, {.mode = 0640, .group = {}, .patience = {}}));
  // The file now belongs to another listener, and the process has shut down its own.
  ASSERT_EQ(::shutdown(listener_->fd(), SHUT_RDWR), 0);
  ASSERT_TRUE(std::filesystem::remove(path_));
  const auto other = *os::bind_unix(path_, "test");
  ASSERT_EQ(::listen(other.get(), 1), 0);
  const auto before = util::monotonic_now();
  EXPECT_FALSE(listener_->renew());
  EXPECT_LT(util::monotonic_now() - before, kAccess.patience);
  std::filesystem::remove(path_);
}

TEST_F(ListenerTest, AWaitingClientIsAcceptedByTheNextProcess) {
  const auto client = os::connect_unix(path_, "test");
  ASSERT_TRUE(client);
  ASSERT_TRUE(listener_->renew());
  EXPECT_TRUE(os::UniqueFd(::accept(listener_->fd(), nullptr, nullptr)));
}

TEST_F(ListenerTest, AListenerThatAProcessHasShutDownIsReplaced) {
  ASSERT_EQ(::shutdown(listener_->fd(), SHUT_RDWR), 0);
  EXPECT_FALSE(os::connect_unix(path_, "test"));
  ASSERT_TRUE(listener_->renew());
  EXPECT_TRUE(serves());
}

TEST_F(ListenerTest, RenewRestoresTheBacklog) {
  ASSERT_EQ(::listen(listener_->fd(), 0), 0);
  ASSERT_TRUE(listener_->renew());
  const auto first = os::connect_unix(path_, "test");
  const auto second = os::connect_unix(path_, "test");
  EXPECT_TRUE(first && second);
}

}  // namespace
}  // namespace softhca::server
