#include "vfio_user/outgoing.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "vfio_user/message_stream.h"

namespace softhca::vfio_user {
namespace {

/// One system call, with sendmsg()'s result; it is cheaper without `fds`.
ssize_t send_once(int socket, std::span<iovec> parts, std::span<const int> fds) {
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int) * kMaxMsgFds)> control;
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  if (!fds.empty()) {
    const auto count = std::min(fds.size(), kMaxMsgFds);
    control.fill(std::byte{0});
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(sizeof(int) * count);
    auto* head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int) * count);
    std::memcpy(CMSG_DATA(head), fds.data(), sizeof(int) * count);
  }
  ssize_t sent;
  do {
    sent = ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  return sent;
}

iovec part_of(std::span<const std::byte> bytes) {
  return {.iov_base = const_cast<std::byte*>(bytes.data()), .iov_len = bytes.size()};
}

}  // namespace

bool Outgoing::send(int socket, const protocol::Header& header, std::span<const std::byte> first,
                    std::span<const std::byte> second, std::span<const int> fds) {
  const auto head = std::as_bytes(std::span(&header, 1));
  std::size_t sent = 0;
  if (empty()) {
    std::array<iovec, 3> parts{part_of(head), part_of(first), part_of(second)};
    const auto result = send_once(
        socket, std::span(parts).first(second.empty() ? (first.empty() ? 1 : 2) : 3), fds);
    // EFAULT: a part is in memory that its owner has removed. The copy below goes through the
    // memory guard, which fills the gap with zeros and notifies the owner.
    if (result < 0 && errno != EAGAIN && errno != EFAULT) return false;
    sent = static_cast<std::size_t>(std::max<ssize_t>(0, result));
    if (sent == head.size() + first.size() + second.size()) return true;
  }
  if (sent == 0 && !fds.empty()) {
    passed_.push_back({.at = bytes_.size(), .fds = {fds.begin(), fds.end()}});
  }
  for (auto part : {head, first, second}) {
    const auto skip = std::min(sent, part.size());
    sent -= skip;
    part = part.subspan(skip);
    bytes_.insert(bytes_.end(), part.begin(), part.end());
  }
  return true;
}

bool Outgoing::flush(int socket) {
  while (sent_ != bytes_.size()) {
    auto rest = std::span<const std::byte>(bytes_).subspan(sent_);
    std::span<const int> fds;
    if (!passed_.empty()) {
      const bool now = passed_.front().at == sent_;
      if (now) fds = passed_.front().fds;
      const auto next = passed_.size() > (now ? 1 : 0) ? passed_[now ? 1 : 0].at : bytes_.size();
      rest = rest.first(next - sent_);
    }
    auto part = part_of(rest);
    const auto result = send_once(socket, std::span(&part, 1), fds);
    if (result < 0) return errno == EAGAIN;
    if (!fds.empty()) passed_.pop_front();
    sent_ += static_cast<std::size_t>(result);
  }
  bytes_.clear();
  sent_ = 0;
  return true;
}

}  // namespace softhca::vfio_user
