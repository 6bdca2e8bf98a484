// A server's link to a hub, tested against a fake hub.
#include "server/fabric_link.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <array>
#include <filesystem>
#include <thread>

#include "hub/fd_message.h"
#include "hub/hello.h"
#include "os/unix_socket.h"
#include "util/log.h"

namespace softhca::server {
namespace {

using os::UniqueFd;
using testing::HasSubstr;

class FabricLinkTest : public testing::Test {
 protected:
  FabricLinkTest() {
    auto name = (std::filesystem::temp_directory_path() / "softhca-XXXXXX").string();
    directory_ = ::mkdtemp(name.data());
    util::set_log_sink([this](auto, auto text) { log_ += std::string(text) + "\n"; });
    const UniqueFd listener(*os::bind_unix(directory_ / "hub", "test"));
    EXPECT_EQ(::listen(listener.get(), 1), 0);
    std::thread hub([&] { greet(listener); });
    link_ = *FabricLink::create(*loop_, network_, "lab", {directory_, UniqueFd()});
    hub.join();
  }
  ~FabricLinkTest() override {
    link_.reset();
    util::set_log_sink(nullptr);
    std::filesystem::remove_all(directory_);
  }

  void greet(const UniqueFd& listener) {
    while (!socket_) socket_ = UniqueFd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    hub::Hello hello;
    hello.number = 1;
    const std::array fds = {to_hub_.fd(), from_hub_.fd(), bell_.get(), wake_.get()};
    EXPECT_TRUE(hub::send_message(socket_.get(), std::as_bytes(std::span(&hello, 1)), fds));
  }
  void turn() {
    for (int i = 0; i < 5; ++i) loop_->run_once(util::Time::min());
  }

  std::filesystem::path directory_;
  std::string log_;
  os::SharedRing to_hub_ = *os::SharedRing::create(os::SharedRing::kCapacityMin);
  os::SharedRing from_hub_ = *os::SharedRing::create(os::SharedRing::kCapacityMin);
  UniqueFd bell_{::eventfd(0, EFD_NONBLOCK)}, wake_{::eventfd(0, EFD_NONBLOCK)};
  UniqueFd socket_;
  std::unique_ptr<os::EventLoop> loop_ = *os::EventLoop::create();
  fabric::Switch network_;
  std::unique_ptr<FabricLink> link_;
};

TEST_F(FabricLinkTest, AHubThatTalksIsThere) {
  ASSERT_EQ(::send(socket_.get(), "a few words", 11, 0), 11);
  turn();
  turn();
  turn();
  EXPECT_EQ(log_, "");
}

TEST_F(FabricLinkTest, AHubThatHasGoneIsReportedOnce) {
  socket_.reset();
  turn();
  EXPECT_THAT(log_, HasSubstr("the hub of fabric lab has gone"));
  log_.clear();
  turn();
  EXPECT_EQ(log_, "");
}

}  // namespace
}  // namespace softhca::server
