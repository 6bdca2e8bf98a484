// A TestFunction behind a server, with a client, all in one thread: the client turns the loop while
// it waits.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>

#include "os/open_descriptors.h"
#include "util/log.h"
#include "vfio_user/client.h"
#include "vfio_user/serve_loop.h"
#include "vfio_user/server.h"
#include "vfio_user/test_function.h"

namespace softhca::test {

/// A directory that is removed after the test.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    auto name = (std::filesystem::temp_directory_path() / "softhca-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~TemporaryDirectory() { std::filesystem::remove_all(path_); }
  std::string operator/(const char* name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

/// Sends bytes with up to 253 descriptors, Linux's limit. A Client sends fewer.
inline void send_with_fds(int socket, std::span<const std::byte> bytes, std::span<const int> fds) {
  iovec io{.iov_base = const_cast<std::byte*>(bytes.data()), .iov_len = bytes.size()};
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int) * 253)> control{};
  msghdr message{};
  message.msg_iov = &io;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = CMSG_SPACE(fds.size_bytes());
  auto* part = CMSG_FIRSTHDR(&message);
  part->cmsg_level = SOL_SOCKET;
  part->cmsg_type = SCM_RIGHTS;
  part->cmsg_len = CMSG_LEN(fds.size_bytes());
  std::memcpy(CMSG_DATA(part), fds.data(), fds.size_bytes());
  ASSERT_EQ(::sendmsg(socket, &message, 0), std::ssize(bytes));
}

class ServedFunction : public ::testing::Test {
 protected:
  ServedFunction() {
    util::set_log_sink([this](util::LogLevel, std::string_view text) { log_.emplace_back(text); });
    loop_ = vfio_user::ServeLoop::create().value();
    loop_->add(function_);
    server_ = vfio_user::Server::listen(loop_->events(), function_, path_).value();
  }
  ~ServedFunction() override { util::set_log_sink(nullptr); }

  /// Replaces the server by one with these options.
  void serve_with(const vfio_user::Server::Options& options) {
    server_.reset();
    server_ = vfio_user::Server::listen(loop_->events(), function_, path_, options).value();
  }
  vfio_user::Client connect() { return connect(path_); }
  vfio_user::Client connect(const std::string& path) {
    return vfio_user::Client::connect(path, {.timeout = std::chrono::seconds(20),
                                             .pump = [this] { loop_->turn(util::Time{}); }})
        .value();
  }
  /// A client that has connected and negotiated VERSION. Bus mastering is enabled.
  vfio_user::Client negotiated() {
    auto client = connect();
    const auto agreed = client.negotiate();
    EXPECT_TRUE(agreed) << agreed.error().message;
    const std::uint16_t memory_and_bus_master = 0x0006;
    EXPECT_EQ(
        client.write_region(vfio_user::protocol::kConfigRegion, 4, bytes_of(memory_and_bus_master)),
        0);
    return client;
  }
  /// Turns the loop until nothing more happens.
  void settle() {
    for (int i = 0; i < 20; ++i) loop_->turn(util::Time{});
  }

  TemporaryDirectory directory_;
  std::string path_ = directory_ / "device.sock";
  std::vector<std::string> log_;
  TestFunction function_;
  std::unique_ptr<vfio_user::ServeLoop> loop_;
  std::unique_ptr<vfio_user::Server> server_;
};

}  // namespace softhca::test
