// Receives bytes and the descriptors that a peer sends with them (SCM_RIGHTS).
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <span>

#include "os/unique_fd.h"

namespace softhca::os {

/// Linux's SCM_MAX_FD: with room for so many, the kernel closes none of a message.
constexpr std::size_t kScmMaxFds = 253;

struct ReceivedBytes {
  ssize_t size;    ///< as recvmsg() returns it, with its errno
  bool truncated;  ///< the kernel has closed descriptors that found no room
};

/// recvmsg() with `flags`. Each descriptor is given to `take`, as a UniqueFd. If `take` throws, the
/// descriptors after it have no owner.
template <std::size_t kRoom = kScmMaxFds, class Take>
ReceivedBytes receive_with_fds(int socket, std::span<std::byte> bytes, int flags, Take take) {
  iovec io{.iov_base = bytes.data(), .iov_len = bytes.size()};
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int) * kRoom)> control;
  msghdr message{};
  message.msg_iov = &io;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const auto size = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC | flags);
  if (size < 0) return {size, false};
  for (auto* part = CMSG_FIRSTHDR(&message); part != nullptr; part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const auto count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof fd, sizeof fd);
      take(UniqueFd(fd));
    }
  }
  return {size, (message.msg_flags & MSG_CTRUNC) != 0};
}

}  // namespace softhca::os
