#include "cli/isolate/listener.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <optional>

namespace softhca::cli {
namespace {

class ListenerTest : public ::testing::Test {
 protected:
  ListenerTest() {
    auto name = (std::filesystem::temp_directory_path() / "softhca-XXXXXX").string();
    directory_ = ::mkdtemp(name.data());
    path_ = directory_ / "socket";
    listener_.emplace(*Listener::listen(path_, {.mode = 0640, .group = {}}));
  }
  ~ListenerTest() override {
    listener_.reset();
    EXPECT_FALSE(std::filesystem::exists(path_));
    std::filesystem::remove_all(directory_);
  }
  bool serves() const {
    const auto client = vfio_user::connect_unix(path_, "test");
    const vfio_user::UniqueFd taken(::accept(listener_->fd(), nullptr, nullptr));
    return client && taken;
  }

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

TEST_F(ListenerTest, WhoWaitsGoesOnWaitingForTheNextProcess) {
  const auto client = vfio_user::connect_unix(path_, "test");
  ASSERT_TRUE(client);
  ASSERT_TRUE(listener_->renew());
  EXPECT_TRUE(vfio_user::UniqueFd(::accept(listener_->fd(), nullptr, nullptr)));
}

TEST_F(ListenerTest, OneThatAProcessHasShutDownIsReplaced) {
  ASSERT_EQ(::shutdown(listener_->fd(), SHUT_RDWR), 0);
  EXPECT_FALSE(vfio_user::connect_unix(path_, "test"));
  ASSERT_TRUE(listener_->renew());
  EXPECT_TRUE(serves());
}

TEST_F(ListenerTest, OneThatLetsNobodyWaitAnyMoreIsMended) {
  ASSERT_EQ(::listen(listener_->fd(), 0), 0);
  ASSERT_TRUE(listener_->renew());
  const auto first = vfio_user::connect_unix(path_, "test");
  const auto second = vfio_user::connect_unix(path_, "test");
  EXPECT_TRUE(first && second);
}

}  // namespace
}  // namespace softhca::cli
