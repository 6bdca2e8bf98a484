// A descriptor whose last close blocks until the test allows it: a TCP socket that lingers for data
// that its peer does not read.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <future>

#include "os/event_loop.h"
#include "os/unique_fd.h"
#include "returns_alone.h"
#include "util/clock.h"

namespace softhca::test {

class SlowClose {
 public:
  explicit SlowClose(int seconds) {
    const os::UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
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
  /// True if `act` does not wait for the close.
  template <class Act>
  bool lets_return(Act act) {
    return returns_alone(act, [this] { release(); });
  }

  os::UniqueFd fd;

 private:
  os::UniqueFd peer_;
};

/// Holds a loop that runs in another thread, while a test puts its last reference to a descriptor
/// into a socket of the loop. If the loop received and closed it before, the test's own close would
/// be the slow one.
class HeldLoop {
 public:
  /// To be created before the loop runs.
  explicit HeldLoop(os::EventLoop& loop)
      : notice_(loop, [this] {
          held_.set_value();
          released_.get_future().wait();
        }) {}
  /// To be called once.
  template <class Do>
  void hold(Do do_meanwhile) {
    notice_.raise();
    held_.get_future().wait();
    do_meanwhile();
    released_.set_value();
  }

 private:
  std::promise<void> held_, released_;
  os::EventLoop::Notice notice_;
};

}  // namespace softhca::test
