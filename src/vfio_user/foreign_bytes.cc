#include "vfio_user/foreign_bytes.h"

#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <utility>

namespace softhca::vfio_user {
namespace {

/// Linux's SCM_MAX_FD.
constexpr std::size_t kScmMaxFds = 253;

}  // namespace

ssize_t receive_bytes(int socket, std::span<char> bytes, Janitor& janitor) {
  iovec io{.iov_base = bytes.data(), .iov_len = bytes.size()};
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int) * kScmMaxFds)> control;
  msghdr message{};
  message.msg_iov = &io;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const auto size = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (size < 0) return size;
  for (auto* part = CMSG_FIRSTHDR(&message); part != nullptr; part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const auto count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof fd, sizeof fd);
      janitor.close(UniqueFd(fd));
    }
  }
  return size;
}

void close_connection(UniqueFd socket, Janitor& janitor) {
  if (!socket) return;
  ::shutdown(socket.get(), SHUT_RDWR);
  janitor.close(std::move(socket));
}

}  // namespace softhca::vfio_user
