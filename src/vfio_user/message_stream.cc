#include "vfio_user/message_stream.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace softhca::vfio_user {
namespace {

using protocol::Header;

constexpr std::size_t kInitialBuffer = 64 * 1024;
/// Room for messages that queue up behind a reply we wait for, and for one that is not whole yet.
constexpr std::size_t kBufferMax = 4 * std::size_t{kMaxMessageSize};

/// Waits for `events` until `until`, which may have passed already.
bool poll_until(int fd, short events, util::Time until) {
  for (;;) {
    const auto left = until - util::monotonic_now();
    const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
    pollfd wanted{.fd = fd, .events = events, .revents = 0};
    const auto ready =
        ::poll(&wanted, 1, static_cast<int>(std::clamp<std::int64_t>(ms, 0, INT32_MAX)));
    if (ready > 0) return true;
    if (ready == 0 || errno != EINTR) return false;
  }
}

}  // namespace

MessageStream::MessageStream(UniqueFd socket)
    : socket_(std::move(socket)), buffer_(kInitialBuffer) {
  const auto flags = ::fcntl(fd(), F_GETFL);
  ::fcntl(fd(), F_SETFL, flags | O_NONBLOCK);
}

bool MessageStream::make_room() {
  if (begin_ == end_) {
    begin_ = end_ = 0;
    return true;
  }
  auto wanted = std::size_t{sizeof(Header)};
  if (end_ - begin_ >= sizeof(Header)) {
    const auto size = protocol::load<Header>(buffer_, begin_).message_size;
    // Whole already: the caller is after a reply behind it. Leave room for that one.
    wanted = std::max<std::size_t>(size, end_ - begin_ + kInitialBuffer / 2);
  }
  if (buffer_.size() - begin_ >= wanted && end_ < buffer_.size()) return true;
  std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
  for (auto& batch : batches_) batch.end -= begin_;
  end_ -= begin_;
  begin_ = 0;
  if (buffer_.size() < wanted) {
    if (wanted > kBufferMax) return false;
    buffer_.resize(std::min(kBufferMax, std::max(wanted, 2 * buffer_.size())));
  }
  return true;
}

MessageStream::Received MessageStream::receive() {
  message_fds_.clear();
  if (!make_room()) {
    broken_ = true;
    return Received::kBroken;
  }
  iovec io{.iov_base = buffer_.data() + end_, .iov_len = buffer_.size() - end_};
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int) * kMaxMsgFds)> control;
  msghdr message{};
  message.msg_iov = &io;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const auto length = ::recvmsg(fd(), &message, MSG_CMSG_CLOEXEC);
  if (length < 0) {
    if (errno == EAGAIN || errno == EINTR) return Received::kNothing;
    return errno == ECONNRESET ? Received::kClosed : Received::kBroken;
  }
  end_ += static_cast<std::size_t>(length);
  const bool fds_good = accept_fds(message, end_);
  if (length == 0) return Received::kClosed;
  if (!fds_good) {
    broken_ = true;
    return Received::kBroken;
  }
  return Received::kData;
}

/// Takes over the descriptors of a recvmsg() whose data ends at `end`. False if there are more than
/// a message may have; all are closed sooner or later either way.
bool MessageStream::accept_fds(const msghdr& message, std::size_t end) {
  std::size_t count = 0;
  auto* head = const_cast<msghdr*>(&message);
  for (auto* part = CMSG_FIRSTHDR(head); part != nullptr; part = CMSG_NXTHDR(head, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const auto fds = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < fds; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof fd);
      waiting_fds_.emplace_back(fd);
      ++count;
    }
  }
  if (count != 0) batches_.push_back({.end = end, .count = count});
  if (message.msg_flags & MSG_CTRUNC) return false;
  // A peer that sends descriptors with every byte of one message would make us hold too many.
  return waiting_fds_.size() <= 64 * kMaxMsgFds;
}

std::optional<std::size_t> MessageStream::message_end(std::size_t at) {
  if (end_ - at < sizeof(Header)) return std::nullopt;
  const auto size = protocol::load<Header>(buffer_, at).message_size;
  if (size < sizeof(Header) || size > kMaxMessageSize) {
    broken_ = true;
    return std::nullopt;
  }
  if (end_ - at < size) return std::nullopt;
  return at + size;
}

/// Moves the descriptors of the batches that end inside the message before `end` to message_fds_.
std::size_t MessageStream::take_fds(std::size_t end) {
  message_fds_.clear();
  std::size_t batches = 0;
  std::size_t count = 0;
  while (batches < batches_.size() && batches_[batches].end <= end)
    count += batches_[batches++].count;
  if (count == 0) return 0;
  const auto last = waiting_fds_.begin() + static_cast<std::ptrdiff_t>(count);
  std::move(waiting_fds_.begin(), last, std::back_inserter(message_fds_));
  waiting_fds_.erase(waiting_fds_.begin(), last);
  batches_.erase(batches_.begin(), batches_.begin() + static_cast<std::ptrdiff_t>(batches));
  return count;
}

std::optional<Message> MessageStream::next() {
  message_fds_.clear();
  if (broken_) return std::nullopt;
  const auto end = message_end(begin_);
  if (!end) return std::nullopt;
  const auto at = begin_;
  begin_ = *end;
  if (!batches_.empty()) take_fds(*end);
  return Message{.header = protocol::load<Header>(buffer_, at),
                 .payload = std::span<const std::byte>(buffer_).subspan(at + sizeof(Header),
                                                                        *end - at - sizeof(Header)),
                 .fds = message_fds_};
}

std::optional<Message> MessageStream::find_reply(std::uint16_t message_id) {
  auto at = begin_;
  while (const auto end = message_end(at)) {
    const auto header = protocol::load<Header>(buffer_, at);
    if ((header.flags & protocol::kTypeMask) == protocol::kTypeReply &&
        header.message_id == message_id) {
      reply_begin_ = at;
      reply_end_ = *end;
      return Message{.header = header,
                     .payload = std::span<const std::byte>(buffer_).subspan(
                         at + sizeof(Header), *end - at - sizeof(Header)),
                     .fds = {}};
    }
    at = *end;
  }
  return std::nullopt;
}

void MessageStream::drop_reply() {
  const auto length = reply_end_ - reply_begin_;
  // No reply that we ask for brings descriptors: those that came with it are closed.
  std::size_t first = 0;
  for (std::size_t i = 0; i < batches_.size();) {
    if (batches_[i].end > reply_begin_ && batches_[i].end <= reply_end_) {
      const auto from = waiting_fds_.begin() + static_cast<std::ptrdiff_t>(first);
      waiting_fds_.erase(from, from + static_cast<std::ptrdiff_t>(batches_[i].count));
      batches_.erase(batches_.begin() + static_cast<std::ptrdiff_t>(i));
      continue;
    }
    if (batches_[i].end > reply_end_) batches_[i].end -= length;
    first += batches_[i++].count;
  }
  std::memmove(buffer_.data() + reply_begin_, buffer_.data() + reply_end_, end_ - reply_end_);
  end_ -= length;
  reply_begin_ = reply_end_ = 0;
}

bool MessageStream::send(const Header& header, std::span<const std::byte> first,
                         std::span<const std::byte> second, std::span<const int> fds) {
  std::array<iovec, 3> parts{{
      {.iov_base = const_cast<Header*>(&header), .iov_len = sizeof header},
      {.iov_base = const_cast<std::byte*>(first.data()), .iov_len = first.size()},
      {.iov_base = const_cast<std::byte*>(second.data()), .iov_len = second.size()},
  }};
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int) * kMaxMsgFds)> control{};
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = second.empty() ? (first.empty() ? 1 : 2) : 3;
  if (!fds.empty()) {
    const auto count = std::min(fds.size(), kMaxMsgFds);
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(sizeof(int) * count);
    auto* head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int) * count);
    std::memcpy(CMSG_DATA(head), fds.data(), sizeof(int) * count);
  }
  auto deadline = util::kNever;  // set at the first time that the socket is full
  for (;;) {
    const auto sent = ::sendmsg(fd(), &message, MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN) return false;
      if (deadline == util::kNever) deadline = util::monotonic_now() + send_timeout_;
      if (!poll_until(fd(), POLLOUT, deadline)) return false;
      continue;
    }
    // Descriptors go with the first byte.
    message.msg_control = nullptr;
    message.msg_controllen = 0;
    auto left = static_cast<std::size_t>(sent);
    while (message.msg_iovlen != 0 && left >= message.msg_iov->iov_len) {
      left -= message.msg_iov->iov_len;
      ++message.msg_iov;
      --message.msg_iovlen;
    }
    if (message.msg_iovlen == 0) return true;
    message.msg_iov->iov_base = static_cast<std::byte*>(message.msg_iov->iov_base) + left;
    message.msg_iov->iov_len -= left;
  }
}

bool MessageStream::send_raw(std::span<const std::byte> bytes, std::span<const int> fds) {
  if (bytes.size() < sizeof(Header)) {
    const auto sent = ::send(fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    return sent == static_cast<ssize_t>(bytes.size());
  }
  return send(protocol::load<Header>(bytes), bytes.subspan(sizeof(Header)), {}, fds);
}

bool MessageStream::wait_readable(util::Time until) const {
  return poll_until(fd(), POLLIN, until);
}

void MessageStream::shutdown() { ::shutdown(fd(), SHUT_RDWR); }

}  // namespace softhca::vfio_user
