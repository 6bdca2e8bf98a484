// A descriptor whose last close blocks until the test allows it: a TCP socket that lingers for data
// that its peer does not read.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>

#include "util/clock.h"
#include "vfio_user/unique_fd.h"

namespace softhca::testing {

class SlowClose {
 public:
  explicit SlowClose(int seconds) {
    const vfio_user::UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* any = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(::bind(listener.get(), any, size), 0);
    EXPECT_EQ(::listen(listener.get(), 1), 0);
    EXPECT_EQ(::getsockname(listener.get(), any, &size), 0);
    fd.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(fd.get(), any, size), 0);
    peer_.reset(::accept(listener.get(), nullptr, nullptr));
    const std::array<char, 65536> data{};
    while (::send(fd.get(), data.data(), data.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
    }
    const linger patience{.l_onoff = 1, .l_linger = seconds};
    EXPECT_EQ(::setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &patience, sizeof patience), 0);
  }
  /// Lets the close return.
  void release() { peer_.reset(); }

  vfio_user::UniqueFd fd;

 private:
  vfio_user::UniqueFd peer_;
};

}  // namespace softhca::testing
