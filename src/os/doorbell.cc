#include "os/doorbell.h"

#include <sys/socket.h>
#include <unistd.h>

#include <array>

namespace softhca::os {

util::Result<std::pair<Doorbell, Doorbell>> Doorbell::make_pair() {
  int fds[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) != 0) {
    return util::fail_errno("doorbell: socketpair");
  }
  return std::pair(Doorbell(fds[0]), Doorbell(fds[1]));
}

Doorbell::~Doorbell() {
  if (fd_ >= 0) ::close(fd_);
}

void Doorbell::ring(int fd) {
  const char byte = 0;
  [[maybe_unused]] const auto sent = ::send(fd, &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

void Doorbell::answer() {
  // Further rings, if any are left, keep the socket readable.
  std::array<char, 256> bytes;
  [[maybe_unused]] const auto got = ::recv(fd_, bytes.data(), bytes.size(), MSG_DONTWAIT);
}

}  // namespace softhca::os
