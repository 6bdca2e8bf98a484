#include "os/wake_socket.h"

#include <sys/socket.h>
#include <unistd.h>

#include <array>

namespace softhca::os {

util::Result<std::pair<WakeSocket, WakeSocket>> WakeSocket::make_pair() {
  int fds[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) != 0) {
    return util::fail_errno("wake socket: socketpair");
  }
  return std::pair(WakeSocket(fds[0]), WakeSocket(fds[1]));
}

WakeSocket::~WakeSocket() {
  if (fd_ >= 0) ::close(fd_);
}

void WakeSocket::wake(int fd) {
  const char byte = 0;
  [[maybe_unused]] const auto sent = ::send(fd, &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

void WakeSocket::clear() {
  // Further rings, if any are left, keep the socket readable.
  std::array<char, 256> bytes;
  [[maybe_unused]] const auto got = ::recv(fd_, bytes.data(), bytes.size(), MSG_DONTWAIT);
}

}  // namespace softhca::os
