#include "hub/fd_message.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <utility>

#include "os/receive_fds.h"

namespace softhca::hub {
namespace {

using os::UniqueFd;

constexpr std::size_t kControl = CMSG_SPACE(kFdsMax * sizeof(int));

UniqueFd above_standard(UniqueFd fd) {
  if (fd.get() > STDERR_FILENO) return fd;
  return UniqueFd(::fcntl(fd.get(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
}

}  // namespace

bool send_message(int socket, std::span<const std::byte> bytes, std::span<const int> fds) {
  assert(fds.size() <= kFdsMax);
  iovec part{.iov_base = const_cast<std::byte*>(bytes.data()), .iov_len = bytes.size()};
  alignas(cmsghdr) std::array<char, kControl> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    auto* const rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(rights), fds.data(), fds.size_bytes());
  }
  return ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) ==
         static_cast<ssize_t>(bytes.size());
}

Received receive_message(int socket, std::span<std::byte> bytes, std::span<UniqueFd> fds,
                         int flags) {
  std::size_t count = 0;
  os::ReceivedBytes received;
  do {
    received = os::receive_with_fds<kFdsMax>(socket, bytes, flags, [&](UniqueFd fd) {
      auto owned = above_standard(std::move(fd));
      if (count < fds.size()) fds[count] = std::move(owned);
      ++count;
    });
  } while (received.size < 0 && errno == EINTR);
  const auto size = received.size;
  if (size < 0) return Received::kNothing;
  const bool complete = count == fds.size() && !received.truncated &&
                        std::ranges::all_of(fds, [](const UniqueFd& fd) { return bool(fd); });
  if (size == 0) return Received::kEnd;
  if (size != static_cast<ssize_t>(bytes.size())) return Received::kOther;
  return complete ? Received::kMessage : Received::kFdsMissing;
}

}  // namespace softhca::hub
