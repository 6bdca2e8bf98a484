#include "hub/fd_message.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <utility>

namespace softhca::hub {
namespace {

using vfio_user::UniqueFd;

constexpr std::size_t kControl = CMSG_SPACE(kFdsMax * sizeof(int));

UniqueFd above_standard(int fd) {
  UniqueFd taken(fd);
  if (fd > STDERR_FILENO) return taken;
  return UniqueFd(::fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
}

/// Takes every descriptor of a message. False if their number is not as expected.
bool take_fds(msghdr& message, std::span<UniqueFd> fds) {
  std::size_t count = 0;
  for (auto* part = CMSG_FIRSTHDR(&message); part != nullptr; part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const auto bytes = part->cmsg_len - CMSG_LEN(0);
    for (std::size_t at = 0; at + sizeof(int) <= bytes; at += sizeof(int), ++count) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(part) + at, sizeof fd);
      auto owned = above_standard(fd);
      if (count < fds.size()) fds[count] = std::move(owned);
    }
  }
  if (count != fds.size() || (message.msg_flags & MSG_CTRUNC) != 0) return false;
  for (const auto& fd : fds) {
    if (!fd) return false;
  }
  return true;
}

}  // namespace

bool send_message(int socket, std::span<const std::byte> bytes, std::span<const int> fds) {
  assert(!fds.empty() && fds.size() <= kFdsMax);
  iovec part{.iov_base = const_cast<std::byte*>(bytes.data()), .iov_len = bytes.size()};
  alignas(cmsghdr) std::array<char, kControl> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = CMSG_SPACE(fds.size_bytes());
  auto* const rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(fds.size_bytes());
  std::memcpy(CMSG_DATA(rights), fds.data(), fds.size_bytes());
  return ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) ==
         static_cast<ssize_t>(bytes.size());
}

Received receive_message(int socket, std::span<std::byte> bytes, std::span<UniqueFd> fds,
                         int flags) {
  iovec part{.iov_base = bytes.data(), .iov_len = bytes.size()};
  alignas(cmsghdr) std::array<char, kControl> control;
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t size;
  do {
    size = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC | flags);
  } while (size < 0 && errno == EINTR);
  if (size < 0) return Received::kNothing;
  const bool complete = take_fds(message, fds);
  if (size == 0) return Received::kEnd;
  if (size != static_cast<ssize_t>(bytes.size())) return Received::kOther;
  return complete ? Received::kMessage : Received::kFdsMissing;
}

}  // namespace softhca::hub
